"""The log of a run."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

from bertmill.cli.main import main
from bertmill.errors import ResourceError
from bertmill.training.progress import Journal, Listener
from tests.training.pretraining import log_of


class Remarks(Listener):
    def __init__(self) -> None:
        self.remarks: list[str] = []

    def remark(self, text: str) -> None:
        self.remarks.append(text)


def scalars(folder: Path) -> list[tuple[int, str, float]]:
    """Read what TensorBoard would show, without the steps that are written again."""
    found: list[tuple[int, str, float]] = []
    for path in sorted(folder.glob("*tfevents*")):
        for event in LegacyEventFileLoader(str(path)).Load():
            if event.HasField("session_log"):
                found = [scalar for scalar in found if scalar[0] < event.step]
            found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
    return found


def test_a_resumed_run_replaces_later_steps_in_tensorboard(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "log.jsonl", Listener())
    for step in (5, 10, 15):
        journal.write({"step": step, "loss": 1.0, "rate": 0.5})
    journal.cut(5)
    for step in (6, 7):
        journal.write({"step": step, "loss": 2.0})
    assert [line["step"] for line in log_of(tmp_path)] == [5, 6, 7]
    assert scalars(tmp_path / "tensorboard") == [(5, "loss", 1.0), (5, "rate", 0.5), (6, "loss", 2.0), (7, "loss", 2.0)]
    assert threading.active_count() == 1


@pytest.mark.parametrize("place", ["/dev/full", "no such/folder/events", "file/events"])
def test_training_continues_without_tensorboard_if_its_file_cannot_be_written(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("bertmill.training.tensorboard.new_path", lambda folder: tmp_path / place)
    listener = Remarks()
    journal = Journal(tmp_path / "log.jsonl", listener)
    for step in (1, 2, 3):
        journal.write({"step": step, "loss": 1.0})
    assert [line["step"] for line in log_of(tmp_path)] == [1, 2, 3]
    [remark] = listener.remarks
    assert remark.startswith(f"{tmp_path / place}: cannot be written: ")
    assert remark.endswith("; TensorBoard logging is disabled")


def test_a_log_on_a_full_disk_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").symlink_to("/dev/full")
    with pytest.raises(ResourceError, match=r"log\.jsonl: cannot be written: No space left on device"):
        Journal(tmp_path / "log.jsonl", Listener()).write({"step": 1})


@pytest.mark.parametrize("damage", [b"5\n", b'{"a": 1}\n', b"\xff\xfe\n"])
def test_a_damaged_log_is_truncated_at_the_damage(damage: bytes, half_a_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(half_a_run, tmp_path / "run")
    shutil.rmtree(run / "checkpoints/step-000020")
    first = (run / "log.jsonl").read_bytes().splitlines(keepends=True)[0]
    (run / "log.jsonl").write_bytes(first + damage)
    assert main(["pretrain", "--out", str(run), "--resume", "--log-every", "2"]) == 0
    assert [line["step"] for line in log_of(run)] == [5, 16, 18, 20]
