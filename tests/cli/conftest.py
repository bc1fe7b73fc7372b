"""A small corpus for the tests of commands."""

from pathlib import Path

import pytest

from tests.conftest import RunCommand

TEXT = "The first line. It has two sentences.\nThe second line.\n\nAnother document.\n"


@pytest.fixture
def corpus(bertmill: RunCommand, tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text(TEXT)
    done = bertmill("corpus", "a.txt", "--vocab", "minilm", "--out", "corpus", "--workers", "1")
    assert done.returncode == 0, done.stderr
    return tmp_path / "corpus"
