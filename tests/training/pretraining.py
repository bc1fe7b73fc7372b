"""Runs `bertmill pretrain` on a tiny model, in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bertmill.cli.main import main
from bertmill.training.objective_trainable import ObjectiveTrainable


def pretrain(corpus: Path, out: Path, *flags: object) -> int:
    size = () if "--init" in flags else ("--size", "tiny")
    fixed = ("--corpus", corpus, "--out", out, *size, "--length", 32, "--batch-size", 8, "--threads", 1)
    return main(["pretrain", *(str(flag) for flag in (*fixed, *flags))])


def log_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def edit_settings(run: Path, changes: Mapping[str, str]) -> None:
    """Replace lines of a run's config.toml, as if it had been started with these settings."""
    config = run / "config.toml"
    lines = [line for line in config.read_text("utf-8").splitlines() if not line.startswith("settings_sha256 = ")]
    assert changes.keys() <= set(lines)
    config.write_text("".join(f"{changes.get(line, line)}\n" for line in lines), encoding="utf-8")


class NanLossAt:
    """Replaces the loss by NaN at some steps, and counts the calls."""

    def __init__(self, steps: set[int], patch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        original = ObjectiveTrainable.loss

        def loss_or_nan(*arguments: Any) -> Any:
            loss, sums = original(*arguments)
            self.calls += 1
            return (loss * float("nan") if self.calls - 1 in steps else loss), sums

        patch.setattr(ObjectiveTrainable, "loss", loss_or_nan)
