"""`bertmill inspect` (with and without `--show N`) and `bertmill check` on a corpus."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bertmill.cli.corpus_folder import show_instances
from bertmill.corpus.build import build_corpus
from bertmill.corpus.instances import InstanceBatch
from bertmill.corpus.masking import NOT_SELECTED
from bertmill.corpus.objectives import load_objective
from bertmill.storage import MANIFEST, read_json, write_manifest
from bertmill.text.tokenizer import BertTokenizer
from tests.conftest import RunCommand


def test_inspect_describes_a_corpus(bertmill: RunCommand, corpus: Path) -> None:
    done = bertmill("inspect", corpus)
    assert done.returncode == 0
    for words in (
        "is a corpus: 2 documents, 4 sentences, 16 pieces from 75 bytes of text",
        "vocabulary: 30,522 pieces, sha256 ",
        "entropy:    2.",
        "sentences by length in pieces:",
        "documents by length in pieces:",
        "4–7  3  ████████████████████████████████████████",
    ):
        assert words in done.stdout
    assert json.loads(bertmill("inspect", corpus, "--json").stdout)["sentences"] == 4


def with_right_hashes(folder: Path, **facts: object) -> None:
    write_manifest(folder, facts={"corpus": {**read_json(folder / MANIFEST)["corpus"], **facts}})


def flip_a_bit(folder: Path) -> None:
    path = folder / "shard-00000.words"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


def put_a_piece_out_of_range(folder: Path) -> None:
    path = folder / "shard-00000.pieces"
    pieces = np.fromfile(path, "<u2")
    pieces[3] = 40_000
    path.write_bytes(pieces.tobytes())
    with_right_hashes(folder)


def drop_a_document(folder: Path) -> None:
    path = folder / "shard-00000.documents"
    path.write_bytes(path.read_bytes()[4:])
    with_right_hashes(folder)


def change_the_vocabulary(folder: Path) -> None:
    path = folder / "vocabulary/tokenizer_config.json"
    path.write_text(path.read_text().replace('"do_lower_case": true', '"do_lower_case": false'))
    with_right_hashes(folder)


def test_inspect_does_not_describe_changed_files(bertmill: RunCommand, corpus: Path) -> None:
    flip_a_bit(corpus)
    done = bertmill("inspect", str(corpus))
    assert (done.returncode, done.stdout) == (4, "")
    assert "has changed since it was written" in done.stderr


def test_check_finds_nothing_wrong_with_a_good_corpus(bertmill: RunCommand, corpus: Path) -> None:
    done = bertmill("check", corpus)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["ok", "hashes:"],
        ["ok", "shards:"],
        ["ok", "counts:"],
        ["ok", "vocabulary:"],
    ]


@pytest.mark.parametrize(
    ("spoil", "wrong", "words"),
    [
        (flip_a_bit, "hashes", "shard-00000.words has changed since it was written"),
        (put_a_piece_out_of_range, "shards", "holds the piece 40000, but the vocabulary has 30,522"),
        (drop_a_document, "counts", "contains 1 documents, not 2"),
        (change_the_vocabulary, "vocabulary", "is not the vocabulary of the corpus"),
    ],
)
def test_check_names_what_is_wrong(
    bertmill: RunCommand, corpus: Path, spoil: Callable[[Path], None], wrong: str, words: str
) -> None:
    spoil(corpus)
    done = bertmill("check", corpus)
    assert done.returncode == 4
    assert f"FAILED {wrong}: " in done.stdout
    assert words in done.stdout
    assert f"1 of 4 checks failed: {wrong}" in done.stderr


def test_a_corpus_without_its_facts_gives_one_line(bertmill: RunCommand, corpus: Path) -> None:
    for facts in ({}, {**read_json(corpus / MANIFEST)["corpus"], "statistics": None}):
        write_manifest(corpus, facts={"corpus": facts})
        for command in ("inspect", "check"):
            done = bertmill(command, corpus)
            assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (4, "", 1)


WRONG = [None, True, "3", -1, 1.5, float("nan"), 10**400, [], {}, [1, "x"], "\x1b[31m" * 20, ["\x1b"]]


def test_a_fact_with_another_type_or_an_impossible_value_gives_one_line(bertmill: RunCommand, corpus: Path) -> None:
    facts = read_json(corpus / MANIFEST)["corpus"]
    statistics = facts["statistics"]
    spoilt = [{**facts, name: value} for name in facts for value in WRONG]
    spoilt += [{**facts, "statistics": {**statistics, name: value}} for name in statistics for value in WRONG]
    codes = Counter()
    for wrong in spoilt:
        write_manifest(corpus, [], facts={"corpus": wrong})
        done = bertmill("inspect", corpus)
        codes[done.returncode] += 1
        assert (done.returncode, len(done.stderr.splitlines())) in ((0, 0), (4, 1)), wrong
        assert "\x1b" not in done.stdout + done.stderr
    assert codes[4] > 0.8 * codes.total()  # some values are possible, or are not used


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "my", "dog", "is", "hairy", "apple"]
    return BertTokenizer({piece: number for number, piece in enumerate(pieces)})


def batch_of(ids: list[int], labels: list[int], segments: list[int], label: int | None) -> InstanceBatch:
    targets = {} if label is None else {"next_sentence_label": np.array([label])}
    return InstanceBatch(np.array(ids), np.array(segments), np.array(labels), np.array([len(ids)]), targets)


def test_selected_pieces_are_shown_with_the_piece_to_predict(tokenizer: BertTokenizer) -> None:
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
        == f"instance 1: 4 pieces, {'2 selected' if objective == 'mlm' else 'each predicted from the pieces before it'}"
    )
    assert lines[1] == ("  [CLS]‹my› my‹dog› dog [SEP]" if objective == "mlm" else "  [CLS] my dog [SEP]")


@pytest.fixture
def stories(tmp_path: Path) -> Path:
    texts = ["\n".join(f"Line {line} of story {story}." for line in range(30)) for story in range(5)]
    (tmp_path / "stories.txt").write_text("\n\n".join(texts))
    minilm = BertTokenizer.from_pretrained("minilm")
    build_corpus([str(tmp_path / "stories.txt")], minilm, tmp_path / "stories", workers=1)
    return tmp_path / "stories"


def test_inspect_shows_instances_and_leaves_the_corpus_unchanged(bertmill: RunCommand, stories: Path) -> None:
    before = sorted(stories.iterdir())
    done = bertmill("inspect", stories, "--show", "3", "--length", "40", "--objective", "mlm+sop")
    assert done.returncode == 0, done.stderr
    assert "mlm+sop, length 40: " in done.stdout
    assert "instance 3: " in done.stdout
    assert "instance 4: " not in done.stdout
    assert "‹" in done.stdout
    again = bertmill("inspect", stories, "--show", "3", "--length", "40", "--objective", "mlm+sop")
    assert again.stdout == done.stdout
    other = bertmill("inspect", stories, "--show", "3", "--length", "40", "--objective", "mlm+sop", "--seed", "1")
    assert other.stdout != done.stdout
    assert sorted(stories.iterdir()) == before


def test_invalid_requests_give_one_line(bertmill: RunCommand, stories: Path) -> None:
    for words, message in [
        (["minilm", "--show", "1"], "--show needs a corpus"),
        ([stories, "--show", "1", "--json"], "cannot be combined with --json"),
        ([stories, "--show", "1", "--length", "4", "--objective", "mlm+nsp"], "too short for mlm+nsp; use at least 5"),
        ([stories, "--show", "1", "--objective", "nsp"], "no objective called 'nsp'"),
        ([stories, "--objective", "nsp"], "no objective called 'nsp'"),
    ]:
        done = bertmill("inspect", *words)
        assert done.returncode == 2
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
