"""The log of a run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bertmill.cli.main import main
from tests.training.pretraining import log_of


@pytest.mark.parametrize("damage", [b"5\n", b'{"a": 1}\n', b"\xff\xfe\n"])
def test_a_damaged_log_is_truncated_at_the_damage(damage: bytes, half_a_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(half_a_run, tmp_path / "run")
    shutil.rmtree(run / "checkpoints/step-000020")
    first = (run / "log.jsonl").read_bytes().splitlines(keepends=True)[0]
    (run / "log.jsonl").write_bytes(first + damage)
    assert main(["pretrain", "--out", str(run), "--resume", "--log-every", "2"]) == 0
    assert [line["step"] for line in log_of(run)] == [5, 16, 18, 20]
