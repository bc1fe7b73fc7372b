"""`bertmill download` and MODEL by name on the Hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import RunCommand
from tests.hub import NAME
from tests.hub_server import Hub


def test_a_model_is_downloaded_by_name_and_announced_in_one_line(hub: Hub, bertmill: RunCommand) -> None:
    result = bertmill("download", NAME)
    assert result.returncode == 0
    assert Path(result.stdout.strip(), "config.json").is_file()
    assert result.stderr == f"downloading {NAME} (1 MB) from {hub.url}\n"
    assert bertmill("tokenize", "--model", NAME, "--text", "good film").returncode == 0
    assert bertmill("inspect", NAME).returncode == 0


def test_a_copy_is_a_complete_model_folder(hub: Hub, bertmill: RunCommand, tmp_path: Path) -> None:
    folder = Path(bertmill("download", NAME).stdout.strip())
    (folder / "pytorch_model.bin").write_text("another program's")
    assert bertmill("download", NAME, "--out", "copy", "--quiet").stderr == ""
    assert bertmill("check", "copy").returncode == 0
    copied = {path.name for path in (tmp_path / "copy").iterdir()}
    assert {path.name for path in folder.iterdir()} - copied == {"pytorch_model.bin"}
    result = bertmill("download", NAME, "--out", "copy")
    assert (result.returncode, result.stderr) == (
        2,
        "bertmill: copy: already exists; choose another name or remove it first\n",
    )


def test_the_environment_names_hub_and_cache(
    hub: Hub, bertmill_process: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    result = bertmill_process("download", NAME)
    assert result.returncode == 0
    assert Path(result.stdout.strip()).is_relative_to(tmp_path / "home/hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert bertmill_process("download", NAME).stdout == result.stdout
    offline = bertmill_process("download", "someone/else")
    assert (offline.returncode, offline.stderr.count("\n")) == (2, 1)
    assert "HF_HUB_OFFLINE is set; installed models: minilm" in offline.stderr
