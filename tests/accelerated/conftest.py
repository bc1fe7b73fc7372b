"""No output from transformers in tests of accelerated models."""

import pytest
import transformers


@pytest.fixture(autouse=True)
def _quiet() -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
