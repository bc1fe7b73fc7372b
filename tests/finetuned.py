"""Fixtures for training, inference and cli: tiny models, fine-tuned once per session, and their training rows.

The vocabulary has about a hundred pieces, so that a step takes milliseconds. Fixtures import torch on first use.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from bertmill.tasks.base import AnyTask

WORDS = ["good", "bad", "fine", "poor", "great", "dull", "warm", "cold", "film", "book", "plot", "scene"]
PLACES = ["paris", "london", "new york"]

MakeModel = Callable[["AnyTask"], Path]
RunMain = Callable[..., str]


def text_of(draw: random.Random, longest: int = 12) -> str:
    """Return a random text of at most `longest` words."""
    return " ".join(draw.choices(WORDS, k=draw.randint(1, longest)))


def finetune_words(model: Path, rows: Path, out: Path, task: str = "classify", **more: Any) -> list[str]:
    """Return the command line of a run that trains all weights. Underscores in `more` become dashes.

    A probe gets no settings of training.
    """
    flags = {"model": model, "train": rows, "dev": 0.1, "method": "full", "out": out, "batch-size": 8, "epochs": 4}
    flags |= {"threads": 1, **more}
    omitted = ("epochs", "learning_rate") if flags["method"] == "probe" else ()
    pairs = ((f"--{name.replace('_', '-')}", str(value)) for name, value in flags.items() if name not in omitted)
    return ["finetune", task, *(word for pair in pairs for word in pair)]


def read_metadata(model: Path) -> dict[str, Any]:
    """Return the content of bertmill.json."""
    metadata: dict[str, Any] = json.loads((model / "bertmill.json").read_text(encoding="utf-8"))
    return metadata


@pytest.fixture
def run_main(capsys: pytest.CaptureFixture[str]) -> RunMain:
    """Runs a command in this process, which must succeed. Returns what it prints to stdout."""

    def run(*words: object) -> str:
        from bertmill.cli.main import main

        capsys.readouterr()
        assert main(list(map(str, words))) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights whose vocabulary has the words above, and single letters for other words."""
    import torch

    from bertmill.model.bert import BertModel
    from bertmill.model.config import BertConfig
    from bertmill.text.tokenizer import BertTokenizer
    from bertmill.text.vocabulary import SPECIAL_TOKENS

    characters = string.ascii_lowercase + string.digits + string.punctuation
    words = [*WORDS, *(word for place in PLACES for word in place.split())]
    pieces = [*SPECIAL_TOKENS, *characters, *(f"##{letter}" for letter in string.ascii_lowercase), *words]
    folder = tmp_path_factory.mktemp("models") / "tiny"
    torch.manual_seed(0)
    config = BertConfig.of_size("tiny").with_settings(vocab_size=len(pieces))
    BertModel(config).save_pretrained(folder)
    BertTokenizer({piece: number for number, piece in enumerate(pieces)}).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def untrained(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Creates a model with a random head for a task, without metadata."""

    def make(task: AnyTask) -> Path:
        import torch

        from bertmill.model.registry import MODEL_CLASSES
        from bertmill.text.tokenizer import BertTokenizer

        folder = tmp_path_factory.mktemp("heads") / "model"
        torch.manual_seed(1)
        MODEL_CLASSES[task.head].from_pretrained(tiny, **task.folder_entries().config).save_pretrained(folder)
        BertTokenizer.from_pretrained(tiny).save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def rows_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts with the label yes if they contain the word `good`."""
    draw = random.Random(0)
    path = tmp_path_factory.mktemp("rows") / "rows.tsv"
    texts = [text_of(draw) for _ in range(120)]
    lines = [f"{text}\t{'yes' if 'good' in text.split() else 'no'}" for text in texts]
    path.write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def finished(tiny: Path, rows_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished run of a classifier with windows of 16 pieces."""
    from bertmill.cli.main import main

    out = tmp_path_factory.mktemp("runs") / "run"
    words = finetune_words(tiny, rows_file, out, learning_rate=2e-3, epochs=12, max_length=16)
    assert main([*words, "--quiet"]) == 0
    return out


@pytest.fixture(scope="session")
def classifier(finished: Path) -> Path:
    """The model of the finished run."""
    return finished / "model"


def _sentence(draw: random.Random, place: str | None) -> list[str]:
    words = draw.choices(WORDS, k=draw.randint(3, 10))
    if place is not None:
        words.insert(draw.randint(0, len(words)), place)
    return words


@pytest.fixture(scope="session")
def tagged_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences in CoNLL columns, with places as entities in IOB1."""
    draw = random.Random(1)
    lines = ["-DOCSTART- O", ""]
    for _ in range(120):
        for word in _sentence(draw, draw.choice([*PLACES, None])):
            lines += [f"{part} {'I-LOC' if word in PLACES else 'O'}" for part in word.split()]
        lines.append("")
    path = tmp_path_factory.mktemp("tags") / "train.conll"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def questions_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions in SQuAD 2.0's format. The answer to `where is it?` is the only place in the passage, if any."""
    draw = random.Random(2)
    paragraphs = []
    for number in range(160):
        place = draw.choice([*PLACES, None])
        passage = " ".join(_sentence(draw, place))
        answers = [] if place is None else [{"text": place, "answer_start": passage.index(place)}]
        qas = [{"id": str(number), "question": "where is it?", "answers": answers, "is_impossible": place is None}]
        paragraphs.append({"context": passage, "qas": qas})
    path = tmp_path_factory.mktemp("questions") / "train.json"
    path.write_text(json.dumps({"version": "2.0", "data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def _trained(task: str, tiny: Path, file: Path, out: Path, epochs: int) -> Path:
    from bertmill.cli.main import main

    more = {"dev": file, "epochs": epochs, "learning_rate": 2e-3, "dropout": 0, "eval_every": 40}
    assert main([*finetune_words(tiny, file, out, task, **more), "--quiet"]) == 0
    return out / "model"


@pytest.fixture(scope="session")
def tagger(tiny: Path, tagged_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model fine-tuned on `tagged_file`."""
    return _trained("tag", tiny, tagged_file, tmp_path_factory.mktemp("runs") / "tag", 6)


@pytest.fixture(scope="session")
def answerer(tiny: Path, questions_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model fine-tuned on `questions_file`."""
    return _trained("answer", tiny, questions_file, tmp_path_factory.mktemp("runs") / "answer", 12)
