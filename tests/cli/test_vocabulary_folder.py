"""`bertmill inspect` and `bertmill check` on a vocabulary."""

import json
from pathlib import Path

from bertmill.storage import MANIFEST, read_json
from tests.conftest import RunCommand


def test_inspect_and_check_accept_vocabularies(bertmill: RunCommand, corpus: Path, tmp_path: Path) -> None:
    for path in (corpus / "vocabulary", corpus / "vocabulary/vocab.txt"):
        done = bertmill("inspect", path)
        assert f"{path} is a vocabulary of 30,522 pieces, uncased." in done.stdout
        assert "994 unused" in done.stdout
        assert bertmill("check", path).returncode == 0
    facts = json.loads(bertmill("inspect", corpus / "vocabulary", "--json").stdout)
    assert facts["sha256"] == read_json(corpus / MANIFEST)["corpus"]["vocabulary_sha256"]
    ordinary = facts["initial_pieces"] + facts["continuation_pieces"]
    assert ordinary + facts["unused"] + 5 == sum(facts["lengths"]) + 999 == 30_522
    (tmp_path / "empty").mkdir()
    assert "is not a model, vocabulary or corpus" in bertmill("inspect", "empty").stderr
