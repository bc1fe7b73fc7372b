"""A corpus of made-up sentences, small enough to train on in a second, and an unfinished run on it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bertmill.corpus.build import build_corpus
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.vocabulary import SPECIAL_TOKENS
from tests.training.pretraining import pretrain

SYLLABLES = [first + second for first in "bdfgklmnprst" for second in "aeiou"]


def made_up_text(num_documents: int, seed: int) -> str:
    """Documents of sentences in which the next word depends on the one before it."""
    draw = random.Random(seed)
    words = [a + b for a in SYLLABLES[:20] for b in SYLLABLES[:5]]
    lines = []
    for _ in range(num_documents):
        place = draw.randrange(len(words))
        for _ in range(draw.randint(3, 8)):
            sentence = []
            for _ in range(draw.randint(4, 12)):
                place = (place * 7 + draw.randint(1, 3)) % len(words)
                sentence.append(words[place])
            lines.append(" ".join(sentence).capitalize() + ".")
        lines.append("")
    return "\n".join(lines)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus folder; its parent has `text.txt` and `heldout.txt`."""
    folder = tmp_path_factory.mktemp("training")
    pieces = [*SPECIAL_TOKENS, ".", *SYLLABLES, *(f"##{syllable}" for syllable in SYLLABLES)]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    (folder / "text.txt").write_text(made_up_text(120, seed=1), encoding="utf-8")
    (folder / "heldout.txt").write_text(made_up_text(12, seed=2), encoding="utf-8")
    tokenizer = BertTokenizer.from_pretrained(folder / "vocab.txt")
    build_corpus([str(folder / "text.txt")], tokenizer, folder / "corpus", workers=1)
    return folder / "corpus"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished runs keep all checkpoints and plans, for tests that look at them or go back to them."""
    monkeypatch.setattr("bertmill.training.runs.Run.clean_up", lambda run: None)


@pytest.fixture(scope="package")
def half_a_run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20 steps without its model, with the checkpoints of steps 15 and 20. Copy it before changing it."""
    run = tmp_path_factory.mktemp("half") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertmill.training.runs.Run.finish", lambda *_: None)
        assert pretrain(corpus, run, "--steps", 20, "--save-every", 5, "--log-every", 5) == 0
    return run
