"""Instances for the eye, and `bertmill inspect CORPUS --show N`."""

from pathlib import Path

import numpy as np
import pytest

from bertmill.corpus.build import build_corpus
from bertmill.corpus.instances import InstanceBatch
from bertmill.corpus.masking import NOT_SELECTED
from bertmill.corpus.objectives import load_objective
from bertmill.corpus.show import show_instances
from bertmill.text.tokenizer import BertTokenizer
from tests.conftest import RunCommand


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "my", "dog", "is", "hairy", "apple"]
    return BertTokenizer({piece: number for number, piece in enumerate(pieces)})


def batch_of(ids: list[int], labels: list[int], segments: list[int], label: int | None) -> InstanceBatch:
    pair_labels = None if label is None else np.array([label])
    return InstanceBatch(np.array(ids), np.array(segments), np.array(labels), np.array([len(ids)]), pair_labels)


def test_selected_pieces_are_shown_with_what_they_hide(tokenizer: BertTokenizer) -> None:
    hidden = [NOT_SELECTED, NOT_SELECTED, 6, NOT_SELECTED, 7, 8, NOT_SELECTED]
    batch = batch_of([2, 5, 4, 3, 9, 8, 3], hidden, [0, 0, 0, 0, 1, 1, 1], label=1)
    assert list(show_instances(batch, load_objective("mlm+nsp"), tokenizer)) == [
        "instance 1: 7 pieces, 3 selected, label 1: B is from another document",
        "  A  [CLS] my [MASK]‹dog› [SEP]",
        "  B  apple‹is› hairy‹hairy› [SEP]",
    ]
    assert "label 1: A and B are swapped" in next(show_instances(batch, load_objective("mlm+sop"), tokenizer))


@pytest.mark.parametrize("objective", ["mlm", "clm"])
def test_an_instance_without_pairs_has_one_text(tokenizer: BertTokenizer, objective: str) -> None:
    batch = batch_of([2, 5, 6, 3], [5, 6, NOT_SELECTED, NOT_SELECTED], [0, 0, 0, 0], label=None)
    lines = list(show_instances(batch, load_objective(objective), tokenizer))
    assert (
        lines[0]
        == f"instance 1: 4 pieces, {'2 selected' if objective == 'mlm' else 'each predicted from those before it'}"
    )
    assert lines[1] == ("  [CLS]‹my› my‹dog› dog [SEP]" if objective == "mlm" else "  [CLS] my dog [SEP]")


@pytest.fixture
def corpus_folder(tmp_path: Path) -> Path:
    stories = ["\n".join(f"Line {line} of story {story}." for line in range(30)) for story in range(5)]
    (tmp_path / "stories.txt").write_text("\n\n".join(stories))
    minilm = BertTokenizer.from_pretrained("minilm")
    build_corpus([str(tmp_path / "stories.txt")], minilm, tmp_path / "stories", workers=1)
    return tmp_path / "stories"


def test_inspect_shows_finished_instances_and_leaves_the_corpus_alone(
    bertmill: RunCommand, corpus_folder: Path
) -> None:
    before = sorted(corpus_folder.iterdir())
    done = bertmill("inspect", corpus_folder, "--show", "3", "--length", "40", "--objective", "mlm+sop")
    assert done.returncode == 0, done.stderr
    assert "mlm+sop in 40 pieces: " in done.stdout
    assert "instance 3: " in done.stdout
    assert "instance 4: " not in done.stdout
    assert "‹" in done.stdout
    again = bertmill("inspect", corpus_folder, "--show", "3", "--length", "40", "--objective", "mlm+sop")
    assert again.stdout == done.stdout
    other = bertmill("inspect", corpus_folder, "--show", "3", "--length", "40", "--objective", "mlm+sop", "--seed", "1")
    assert other.stdout != done.stdout
    assert sorted(corpus_folder.iterdir()) == before


def test_wishes_that_cannot_be_met_are_one_line(bertmill: RunCommand, corpus_folder: Path) -> None:
    for words, message in [
        (["minilm", "--show", "1"], "--show prints instances of a corpus"),
        ([corpus_folder, "--show", "1", "--json"], "not as JSON"),
        ([corpus_folder, "--show", "1", "--length", "4"], "the length 4 is too short for mlm+nsp; from 5 on"),
        ([corpus_folder, "--show", "1", "--objective", "nsp"], "no objective called 'nsp'"),
        ([corpus_folder, "--objective", "nsp"], "no objective called 'nsp'"),
    ]:
        done = bertmill("inspect", *words)
        assert done.returncode == 2
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
