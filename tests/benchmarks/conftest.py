"""A data folder with the layout of the benchmark data and very little in it."""

import json
import lzma
import shutil
from pathlib import Path

import pytest

from bertmill.checkpoint.names import find_model

SENTENCES = ["The river was wide.", "Nobody crossed it before noon.", "A bridge was built in 1893.", "It fell."]
PASSAGE = "The bridge was built in 1893 by two brothers. It fell in the storm of 1911."


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name in ("text", "vocab", "squad2"):
        (folder / name).mkdir()
    documents = "\n\n".join("\n".join(f"{number} {line}" for line in SENTENCES) for number in range(40))
    (folder / "text/enwiki.txt.xz").write_bytes(lzma.compress(documents.encode()))
    shutil.copy(find_model("minilm") / "vocab.txt", folder / "vocab/bert-base-uncased-vocab.txt")
    questions = [{"question": question} for question in ("When was it built?", "Who built it?", "When did it fall?")]
    squad = {"data": [{"paragraphs": [{"context": PASSAGE, "qas": questions}]}]}
    (folder / "squad2/dev-half.json").write_text(json.dumps(squad))
    return folder
