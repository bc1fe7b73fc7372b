"""Labels of texts come from fastText's prefix or from the name of a folder, and no text is lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bertmill.errors import DataError, UsageError
from bertmill.rows.labeled_texts import LABEL_PREFIX, read_class_folder, read_fasttext
from bertmill.rows.row import Record
from bertmill.text.files import Line
from tests.rows.factory import row_file, write


def parse(*texts: str) -> list[Record]:
    return list(read_fasttext(Line("a.txt", number, text) for number, text in enumerate(texts, start=1)))


@pytest.mark.parametrize(
    ("line", "text", "labels"),
    [
        ("__label__x a text", "a text", ["x"]),
        ("__label__x\ta text", "a text", ["x"]),
        ("__label__x __label__y-1 a text", "a text", ["x", "y-1"]),
        ("a text __label__x", "a text", ["x"]),
        ("__label____x__ a", "a", ["__x__"]),
        ("a text", "a text", None),
        ("about__label__x a __label__", "about__label__x a __label__", None),
        ("__label__x", "", ["x"]),
    ],
)
def test_labels_are_words_with_the_prefix(line: str, text: str, labels: list[str] | None) -> None:
    assert parse("", line, " ") == [Record("a.txt:2", {"text": text, "label": labels})]


NAMES = st.lists(st.from_regex(r"\A[a-z0-9_.,|-]+\Z"), min_size=1, max_size=4)
TEXTS = (
    st.text(st.characters(exclude_categories=["Cs", "Cc"])).map(str.strip).filter(lambda text: LABEL_PREFIX not in text)
)


@given(names=NAMES, text=TEXTS)
def test_what_is_written_in_the_format_of_fasttext_is_read(names: list[str], text: str) -> None:
    assume(LABEL_PREFIX not in text)
    (record,) = parse(" ".join([*(LABEL_PREFIX + name for name in names), text]))
    assert record.fields == {"text": text, "label": names}


def fill(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder / name, f"text\n\nof {name}\n")
    return str(folder)


def read(path: str, *, labeled: bool = True) -> list[Record]:
    return list(read_class_folder(row_file(path), labeled=labeled))


def test_each_file_of_a_subfolder_is_a_text_of_this_class(tmp_path: Path) -> None:
    folder = fill(tmp_path, "b/2.txt", "b/10", "a/3.txt.gz", "a/.hidden", ".git/x.txt", "readme.txt")
    assert [(record.fields, record.id) for record in read(folder)] == [
        ({"text": "text\n\nof a/3.txt.gz", "label": "a"}, "a/3.txt.gz"),
        ({"text": "text\n\nof b/10", "label": "b"}, "b/10"),
        ({"text": "text\n\nof b/2.txt", "label": "b"}, "b/2.txt"),
    ]
    assert [record.place for record in read(folder)][1] == f"{folder}/b/10"


def test_unlabeled_texts_of_imdb_are_not_a_class(tmp_path: Path) -> None:
    file = row_file(fill(tmp_path, "pos/1.txt", "neg/1.txt", "unsup/1.txt"))
    assert [record.id for record in read_class_folder(file, labeled=True)] == ["neg/1.txt", "pos/1.txt"]
    assert file.counts.notices == [f"{tmp_path}/unsup is not read: its texts have no labels"]
    assert len(read(file.path, labeled=False)) == 3


def test_a_folder_of_texts_can_be_read_for_prediction(tmp_path: Path) -> None:
    folder = fill(tmp_path, "1.txt", "2.TXT.gz", "config.json")
    assert [record.id for record in read(folder, labeled=False)] == ["1.txt", "2.TXT.gz"]
    with pytest.raises(DataError, match="the folder has no subfolders; name a file of rows, or a folder with one sub"):
        read(folder)


@pytest.mark.parametrize(
    ("names", "labeled", "message"),
    [
        (
            ["train/pos/1.txt", "train/neg/1.txt", "test/pos/1.txt"],
            True,
            "test would be a class, but contains 1 folder; ",
        ),
        (["a/.hidden"], True, "the folder contains no texts"),
        (["config.json"], False, "the folder contains no texts; name a file, or a folder of .txt files"),
    ],
)
def test_other_folders_are_rejected(tmp_path: Path, names: list[str], labeled: bool, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        read(fill(tmp_path, *names), labeled=labeled)


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a\.txt: is not a folder"):
        read(write(tmp_path / "a.txt", "text"))


def test_a_very_long_text_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertmill.rows.labeled_texts._MAX_CHARACTERS", 10)
    with pytest.raises(DataError, match=r"a/1\.txt: the text has more than 10 characters"):
        read(fill(tmp_path, "a/1.txt"))


def test_the_encoding_applies_to_every_text(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write(tmp_path / "a/1.txt", "naïve".encode("cp1252"))
    (record,) = read_class_folder(row_file(tmp_path, encoding="cp1252"), labeled=True)
    assert record.fields["text"] == "naïve"
