"""The base class of all settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from bertmill.config.fields import MAY_CHANGE


class Settings(BaseModel):
    """Settings of every command. The docstring of a subclass is the description in the command's help."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    quiet: Annotated[bool, MAY_CHANGE] = Field(
        False, description="print only results and warnings, without progress or notes"
    )
