"""A corpus contains the pieces of every sentence and is byte-identical for any number of workers and interruptions."""

import fcntl
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill import BertTokenizer, storage
from bertmill.corpus import build, shard_texts
from bertmill.corpus.build import build_corpus, make_shard
from bertmill.corpus.shards import Corpus
from bertmill.errors import DataError, ResourceError, UsageError
from bertmill.text.repair import Repairs
from bertmill.text.sentences import split_sentences
from bertmill.text.vocabulary import SPECIAL_TOKENS
from bertmill.text.wordpiece import WordPiece

TOKENIZER = BertTokenizer.from_pretrained("minilm")
WORDPIECE = TOKENIZER.wordpiece


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_texts, "SHARD_CHARACTERS", 2000)


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 documents of a few lines each, one of them larger than a shard."""
    chance = random.Random(5)
    words = [piece for piece in WORDPIECE.vocabulary if piece.isalpha() and len(piece) > 2]
    documents = []
    for number in range(150):
        lines = []
        for _ in range(chance.randrange(1, 7) if number != 40 else 150):
            sentences = [" ".join(chance.choices(words, k=chance.randrange(2, 20))).capitalize() for _ in range(4)]
            lines.append(". ".join(sentences) + ".")
        documents.append("\n".join(lines))
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(documents) + "\n")
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def documents_of(corpus: Corpus) -> list[list[list[int]]]:
    """Return the pieces of each sentence of each document."""
    ends = [
        end + first for s, first in zip(corpus.shards, corpus.piece_offsets, strict=False) for end in s.sentence_ends
    ]
    document_ends = [
        int(end + first)
        for shard, first in zip(corpus.shards, corpus.sentence_offsets, strict=False)
        for end in shard.document_ends
    ]
    sentences = [corpus.pieces(*span).tolist() for span in zip([0, *ends], ends, strict=False)]
    return [sentences[start:end] for start, end in zip([0, *document_ends], document_ends, strict=False)]


def expected(documents: list[list[str]]) -> list[list[list[int]]]:
    """Return the ids that the tokenizer gives for each sentence of each document, whose lines are given."""
    return [
        [WORDPIECE.ids(sentence, split_special=True).tolist() for line in lines for sentence in split_sentences(line)]
        for lines in documents
    ]


@pytest.mark.parametrize("numbers_of_workers", [(1, 2), pytest.param((1, 4), marks=pytest.mark.slow)], ids=str)
@pytest.mark.usefixtures("small_shards")
def test_the_number_of_workers_makes_no_difference_and_every_sentence_is_stored(
    numbers_of_workers: tuple[int, int], text_file: Path, tmp_path: Path
) -> None:
    folders = [tmp_path / f"with-{workers}" for workers in numbers_of_workers]
    progress: list[int] = []
    for workers, folder in zip(numbers_of_workers, folders, strict=True):
        facts = build_corpus(
            [str(text_file)], TOKENIZER, folder, workers=workers, on_progress=lambda _, text: progress.append(text)
        )
    assert content(folders[0]) == content(folders[1])
    assert not list(tmp_path.glob(".*"))
    corpus = Corpus(folders[0])
    documents = documents_of(corpus)
    assert documents == expected([part.split("\n") for part in text_file.read_text().strip().split("\n\n")])
    assert facts["shards"] > 20
    assert any(not len(shard.document_ends) for shard in corpus.shards)  # the large document spans shards
    assert sum(progress) == 2 * facts["text_bytes"]
    assert facts["pieces"] == corpus.num_pieces
    assert facts["sentences"] == corpus.num_sentences == sum(map(len, documents))
    assert facts["documents"] == corpus.num_documents == len(documents)
    tokenizer = BertTokenizer.from_pretrained(corpus.vocabulary_folder)
    corpus.require_vocabulary(tokenizer.wordpiece, "")


def test_a_corpus_of_real_text_has_the_pieces_of_the_tokenizer(
    read_lines: Callable[..., list[str]], tmp_path: Path
) -> None:
    lines = read_lines("text/enwiki-heldout.txt.xz", 300_000)
    (tmp_path / "a.txt").write_text("\n".join(lines))
    build_corpus([str(tmp_path / "a.txt")], TOKENIZER, tmp_path / "corpus", workers=1)
    assert documents_of(Corpus(tmp_path / "corpus")) == expected([lines])


some_lines = st.lists(st.text(alphabet="ab .。!？\u200b中é[MASK]\x01#", max_size=12), max_size=8)


@given(lines=some_lines)
def test_word_beginnings_are_those_of_the_tokenizer(lines: list[str]) -> None:
    lines = [line for line in lines if line.strip()]
    shard, num_dropped = make_shard(WORDPIECE, "".join(f"{line}\n" for line in lines) + "\n", chinese_words=False)
    sentences = [sentence for line in lines for sentence in split_sentences(line)]
    located = [WORDPIECE.pieces(sentence, split_special=True) for sentence in sentences]
    kept = [pieces for pieces in located if len(pieces.ids)]
    assert num_dropped == len(located) - len(kept)
    assert shard.pieces[:].tolist() == [number for pieces in kept for number in pieces.ids.tolist()]
    begins = [flag for pieces in kept for flag in (np.diff(pieces.words, prepend=-1) > 0).tolist()]
    assert shard.begins_word(0, shard.num_pieces).tolist() == begins
    assert shard.document_ends.tolist() == ([len(kept)] if kept else [])


def test_words_that_are_not_split_begin_a_word_even_if_they_look_like_continuations() -> None:
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL_TOKENS, "a", "##a"])}
    shard, _ = make_shard(WordPiece(vocabulary, never_split=["##a"]), "aa ##a\n\n", chinese_words=False)
    assert shard.pieces[:].tolist() == [5, 6, 6]
    assert shard.begins_word(0, 3).tolist() == [True, False, True]


@pytest.mark.usefixtures("small_shards")
def test_a_document_ends_even_if_its_last_lines_give_no_pieces(tmp_path: Path) -> None:
    invisible = "\u200b" * 1000 + "\n"
    (tmp_path / "a.txt").write_text("one two.\n" * 1000 + invisible * 20 + "\nnext document\n")
    facts = build_corpus([str(tmp_path / "a.txt")], TOKENIZER, tmp_path / "corpus", workers=1)
    assert [len(document) for document in documents_of(Corpus(tmp_path / "corpus"))] == [1000, 1]
    assert facts["dropped_sentences"] == 20


# Interruption and resumption

SCRIPT = """
import sys
from pathlib import Path
from bertmill.corpus import shard_texts
from bertmill.corpus.build import build_corpus
from bertmill.text.tokenizer import BertTokenizer
if __name__ == "__main__":
    shard_texts.SHARD_CHARACTERS = 2000
    build_corpus([sys.argv[1]], BertTokenizer.from_pretrained("minilm"), Path(sys.argv[2]), workers=2)
"""


def start(folder: Path, text_file: Path) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(SCRIPT)
    words = [sys.executable, str(folder / "script.py"), str(text_file), str(folder / "corpus")]
    return subprocess.Popen(words, start_new_session=True, text=True, stderr=subprocess.PIPE)


def records(folder: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of the records of finished shards."""
    found = {}
    for path in (folder / ".corpus.partial/records").glob("shard-*.json"):
        status = path.stat()
        found[path.name] = (status.st_ino, status.st_mtime_ns)
    return found


def wait_for_more_records(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    while process.poll() is None and len(records(folder)) <= count and not (folder / "corpus").exists():
        time.sleep(0.001)


@pytest.fixture(scope="module")
def whole(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a corpus that was built without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    process = start(folder, text_file)
    assert process.wait(60) == 0, process.communicate()[1]
    process.communicate()
    return content(folder / "corpus")


@pytest.mark.parametrize("num_kills", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_a_build_that_is_killed_and_resumed_gives_the_same_corpus(
    text_file: Path, tmp_path: Path, whole: dict[str, bytes], num_kills: int
) -> None:
    chance = random.Random(num_kills)
    for _ in range(num_kills):
        before = records(tmp_path)
        process = start(tmp_path, text_file)
        wait_for_more_records(process, tmp_path, len(before))
        time.sleep(chance.uniform(0, 0.06 / num_kills))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL  # it was not finished
        assert before.items() <= records(tmp_path).items()  # finished shards are kept
    process = start(tmp_path, text_file)
    assert process.wait(60) == 0, process.communicate()[1]
    process.communicate()
    assert content(tmp_path / "corpus") == whole
    assert not (tmp_path / ".corpus.partial").exists()


def test_workers_end_if_their_parent_is_killed(text_file: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    process = start(tmp_path, text_file)
    wait_for_more_records(process, tmp_path, 0)
    process.kill()
    process.communicate()
    again = start(tmp_path, text_file)  # waits for the workers, which hold the lock too
    assert again.wait(60) == 0, again.communicate()[1]
    again.communicate()
    assert content(tmp_path / "corpus") == whole
    assert not group_is_alive(process.pid)


def group_is_alive(group: int) -> bool:
    give_up_at = time.monotonic() + 10
    while time.monotonic() < give_up_at:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture
def interrupted(text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_shards: None) -> Iterator[Path]:
    """The folder of a build that was interrupted after its last shard."""
    with monkeypatch.context() as patch:
        patch.setattr(build, "compute_statistics", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build_corpus([str(text_file)], TOKENIZER, tmp_path / "corpus", workers=1)
    assert not (tmp_path / "corpus").exists()
    return tmp_path / "corpus"


def shards_built(text_file: Path, out: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> list[int]:
    """Build a corpus and return the numbers of the shards that were built."""
    numbers = []
    write_shard = build.write_shard

    def counted(job: build.Job, wordpiece: WordPiece, shard_text: shard_texts.ShardText) -> build.ShardRecord:
        numbers.append(shard_text.number)
        return write_shard(job, wordpiece, shard_text)

    monkeypatch.setattr(build, "write_shard", counted)
    build_corpus([str(text_file)], TOKENIZER, out, workers=1, **settings)  # type: ignore[arg-type]
    return numbers


def test_only_unfinished_shards_are_built(
    interrupted: Path, text_file: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = interrupted.with_name(".corpus.partial")
    (partial / "whole/shard-00003.pieces").write_bytes(b"cut")
    (partial / "whole/shard-00004.words").unlink()
    (partial / "records/shard-00005.json").write_text("{")
    (partial / "records/shard-00006.json").write_text('{"recipe": 3}')
    (partial / "whole/.tmp-left-by-a-kill").write_text("x")
    (partial / "whole/shard-99999.pieces").write_text("of a longer text")
    assert shards_built(text_file, interrupted, monkeypatch) == [3, 4, 5, 6]
    assert content(interrupted) == whole


def test_only_shards_whose_text_changed_are_built_again(
    interrupted: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = text_file.read_text()
    changed = tmp_path / "changed.txt"
    changed.write_text(text[:3000].replace("a", "b", 1) + text[3000:])
    assert shards_built(changed, interrupted, monkeypatch) == [0]


def test_all_shards_are_built_again_with_another_recipe(
    interrupted: Path, text_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(build, "__version__", "0")
        built = shards_built(text_file, interrupted, monkeypatch)
    assert len(built) == Corpus(interrupted).facts["shards"]


def test_two_builds_of_the_same_corpus_at_once_are_rejected(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_LOCK_PATIENCE_S", 0.1)
    partial = tmp_path / ".corpus.partial"
    partial.mkdir()
    descriptor = os.open(partial, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(ResourceError, match="is being written by another process"):
            build_corpus([str(text_file)], TOKENIZER, tmp_path / "corpus", workers=1)
    finally:
        os.close(descriptor)
    build_corpus([str(text_file)], TOKENIZER, tmp_path / "corpus", workers=1)


# Errors


def test_an_existing_folder_is_not_touched(text_file: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    with pytest.raises(UsageError, match="already exists"):
        build_corpus([str(text_file)], TOKENIZER, tmp_path / "corpus")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


@pytest.mark.parametrize("text", ["", "\n\n", "\u200b\n"])
def test_files_without_text_are_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(DataError, match="no text"):
        build_corpus([str(tmp_path / "a.txt")], TOKENIZER, tmp_path / "corpus", workers=1)
    assert not (tmp_path / "corpus").exists()


def test_repairs_are_counted_even_if_shards_are_kept(interrupted: Path, text_file: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.txt"
    damaged.write_bytes(text_file.read_bytes() + b"bad \xff byte\n")
    repairs = Repairs()
    build_corpus([str(damaged)], TOKENIZER, interrupted, workers=1, repairs=repairs)
    assert repairs.bad_bytes == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_gives_a_one_line_error_and_the_build_can_be_resumed(
    text_file: Path, tmp_path: Path, workers: int
) -> None:
    words = ["corpus", str(text_file), "--vocab", "minilm", "--out", "corpus", "--workers", str(workers), "--quiet"]
    program = Path(sys.executable).with_name("bertmill")

    def run(max_bytes: int) -> subprocess.CompletedProcess[str]:
        limit = (max_bytes, max_bytes)
        return subprocess.run(
            [program, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        )

    for max_bytes in (1_000, 200_000):  # smaller than a shard's files, and smaller than tokenizer.json
        done = run(max_bytes)
        assert done.returncode == 6
        assert len(done.stderr.splitlines()) == 1
        assert "cannot be written: File too large; free some space" in done.stderr
        assert not (tmp_path / "corpus").exists()
        assert not list(tmp_path.rglob(".tmp-*"))
    assert run(resource.RLIM_INFINITY).returncode == 0
    assert json.loads((tmp_path / "corpus/manifest.json").read_text())["corpus"]["documents"] == 150
