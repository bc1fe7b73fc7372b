"""The wheel is complete: it works in a clean environment, without the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def run(*words: object, folder: Path) -> str:
    """Run a command without the network guard, since pip needs a package index; return its output."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(list(map(str, words)), cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_wheel_installs_and_predicts_without_the_repository(classifier: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT, folder=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "venv", "clean", folder=tmp_path)
    program = tmp_path / "clean/bin"
    run(program / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel, folder=tmp_path)
    assert "usage: bertmill COMMAND" in run(program / "bertmill", "--help", folder=tmp_path)
    words = ("predict", classifier, "--text", "a good film", "--quiet")
    assert json.loads(run(program / "bertmill", *words, folder=tmp_path))["label"] == "yes"
    run(program / "bertmill", "report", classifier.parent, "--out", "report.html", folder=tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 20_000  # its assets are in the wheel
