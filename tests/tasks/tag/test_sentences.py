"""Tests for reading tagged sentences from text files: a word or a sentence per line, and parallel files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.config.commands import RowSettings
from bertmill.errors import DataError, UsageError
from bertmill.rows.source import RowFile
from bertmill.rows.trained import recorded_rows, trained_rows
from bertmill.tasks.tag.rows import WordsRow, read_words
from tests.rows.factory import row_file, write

WORDS = st.text(st.characters(exclude_categories=("Z", "C")) | st.sampled_from("#\u3000"), min_size=1, max_size=6)
TAGS = st.sampled_from(["O", "B-X", "I-X", "NN"])


def read(file: RowFile, *, labeled: bool = True) -> list[tuple[list[str], tuple[str, ...] | None]]:
    return [(words(row), row.tags) for row in read_words(file, labeled)]


def words(row: WordsRow) -> list[str]:
    return [row.texts[0][start:end] for start, end in row.words]


@pytest.fixture
def read_text(tmp_path: Path) -> Callable[..., list[tuple[list[str], tuple[str, ...] | None]]]:
    def read_content(content: str, *, labeled: bool = True, name: str = "a.tsv", **settings: Any) -> Any:
        return read(row_file(write(tmp_path / name, content), **settings), labeled=labeled)

    return read_content


# One sentence per line


def test_untagged_sentences_are_read_as_in_training(tmp_path: Path) -> None:
    """A first line without tabs does not tell whether lines are words or sentences."""
    train = row_file(write(tmp_path / "train.tsv", "希望工程\tB I I I\nEU rejects\tB O\n"))
    list(read_words(train, labeled=True))
    recorded = recorded_rows(train)
    assert recorded == {"suffix": ".tsv", "detected_format": "sentences"}
    for name, content, expected in [
        ("new.tsv", "希望工程\nEU rejects German\n", [["希", "望", "工", "程"], ["EU", "rejects", "German"]]),
        ("new.tsv", "EU\tB\nGerman\tO\n", [["EU", "German"]]),
        ("new.conll", "希望\n工程\n", [["希望", "工程"]]),
    ]:
        file, trained = row_file(write(tmp_path / name, content)), trained_rows(recorded, "m")
        assert trained is not None
        trained.apply_to(file)
        assert [words(row) for row in read_words(file, labeled=False)] == expected


def test_a_line_with_several_tags_is_a_sentence(tmp_path: Path) -> None:
    content = "EU rejects  German call\tB-ORG O B-MISC O\n\nPeter\tB-PER \n希望2\tO O O\n北京\tB-LOC\n2008\tO O O O\n"
    path = write(tmp_path / "a.txt", f"{content}# 1\tO B-NUM\n")
    rows = list(read_words(row_file(path), labeled=True))
    assert [(words(row), row.tags) for row in rows] == [
        (["EU", "rejects", "German", "call"], ("B-ORG", "O", "B-MISC", "O")),
        (["Peter"], ("B-PER",)),
        (["希", "望", "2"], ("O", "O", "O")),
        (["北京"], ("B-LOC",)),
        (["2", "0", "0", "8"], ("O", "O", "O", "O")),
        (["#", "1"], ("O", "B-NUM")),
    ]
    assert [(row.place, row.id) for row in rows[:2]] == [(f"{path}:1", 1), (f"{path}:3", 2)]


@pytest.mark.parametrize(
    ("content", "is_sentence"),
    [
        ("a b\tO O\n", True),
        ("# a comment\n\n-DOCSTART-\tO\na b\tO O\n", True),
        ("1\tx\ta b\tO O\n", True),  # the tags are in the last column
        ("a b\tO\n", False),  # a word with a space
        ("a b\tO \n", False),
        ("a\tO\n", False),
        ("a O O\n", False),
    ],
)
def test_the_first_line_decides_whether_lines_are_sentences(
    content: str, is_sentence: bool, read_text: Callable[..., Any]
) -> None:
    columns = "text=3,label=4" if content.startswith("1") else None
    ((found, _),) = read_text(content, columns=columns)
    assert (found == ["a", "b"]) == is_sentence


def test_the_format_can_be_given(read_text: Callable[..., Any]) -> None:
    one_tag_first = "Yes\tUH\nI do\tPRP VBP\n"
    assert read_text(one_tag_first, format="sentences") == [(["Yes"], ("UH",)), (["I", "do"], ("PRP", "VBP"))]
    what = (
        "a.tsv:2: the tag 'PRP VBP' contains a space, but the first tag of the file does not; set "
        "`format='sentences'` if every line is a sentence, `format='conll'` if every line is a word, or set "
    )
    with pytest.raises(DataError, match=re.escape(what)):
        read_text(one_tag_first)
    assert read_text("New York\tproper noun\nis\tverb\n", format="conll") == [
        (["New York", "is"], ("proper noun", "verb"))
    ]


@pytest.mark.parametrize("name", ["a.conll", "seq.in"])
def test_sentences_without_tags_are_words_for_prediction(name: str, read_text: Callable[..., Any]) -> None:
    content = "well-known facts .\n# 1\n希望2\nHello\n2008\n"
    found = read_text(content, name=name, labeled=False, format="sentences")
    assert [each for each, _ in found] == [
        ["well-known", "facts", "."], ["#", "1"], ["希", "望", "2"], ["Hello"], ["2008"]
    ]  # fmt: skip


def test_tags_are_ignored_for_prediction(read_text: Callable[..., Any]) -> None:
    content = "a b\tO O\n2008\tO O O O\nwrong\tO\tO\n"
    with pytest.raises(DataError, match=r"a.tsv:3: the line has 3 columns, but the first line has 2; correct it, or"):
        read_text(content, labeled=False)
    assert read_text(content[:-10], labeled=False) == [(["a", "b"], None), (["2", "0", "0", "8"], None)]


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.xz"])
def test_a_header_is_skipped_and_reported_or_names_the_columns(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, "text_a\tlabel\n希望\tO O\n")
    file = row_file(path)
    assert read(file) == [(["希", "望"], ("O", "O"))]
    assert file.counts.notices == [f"{path}:1: the header (text_a, label) is not read as a sentence"]
    file = row_file(path, columns="text=text_a,label=label")
    assert read(file) == [(["希", "望"], ("O", "O"))]
    assert file.counts.notices == []


def test_columns_of_a_header_are_found_by_name(read_text: Callable[..., Any]) -> None:
    content = "id\tner\tsentence\n7\tO O\ta b\n"
    assert read_text(content, columns="text=sentence,label=ner") == [(["a", "b"], ("O", "O"))]
    assert read_text(content, columns="text=sentence", labeled=False, format="sentences") == [(["a", "b"], None)]
    assert read_text("a b\nc\n", columns="text=1,label=2", labeled=False, format="sentences") == [
        (["a", "b"], None),
        (["c"], None),
    ]
    assert read_text("word pos\na O\n\nb X\n") == [(["a"], ("O",)), (["b"], ("X",))]
    with pytest.raises(UsageError, match=r"a.tsv:1: there is no column 'tags'; the first line is id, ner, sentence; "):
        read_text(content, columns="text=sentence,label=tags")


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("a b\tO O\nc d e\tO O\n", {}, "a.tsv:2: the row has 3 words but 2 tags; correct it, or set `on_bad_row="),
        ("a b\tO O\n希望工程\tO O\n", {}, "a.tsv:2: the row has 4 words but 2 tags"),
        ("a b\tO O\n希望\t\n", {}, "a.tsv:2: the row has 1 word but 0 tags"),
        ("a b\tO O\nc\t\n", {}, "a.tsv:2: the row has 1 word but 0 tags"),
        ("a b\tO O\n \tO O\n", {}, "a.tsv:2: words must be a non-empty list"),
        ("a b\n", {"format": "sentences"}, "a.tsv:1: the line has 1 column, but column 2 is needed; separate words and "
         "tags with a tab, or set `tags` to a file"),
        ("EU rejects it\nPeter\n", {}, "a.tsv:2: the line has 1 column, but the first line has 3; correct it, set "
         "`format='sentences'` if every line is a sentence, or set `on_bad_row='skip'`"),
    ],
)  # fmt: skip
def test_a_bad_line_is_reported_with_its_place(
    content: str, settings: dict[str, Any], message: str, read_text: Callable[..., Any]
) -> None:
    with pytest.raises(DataError) as error:
        read_text(content, **settings)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", "Sentence #,Word,POS,Tag\n"), ("a.csv", "EU,B-ORG\nrejects,O\n"), ("a.txt", "EU,B-ORG\n")],
)
@pytest.mark.parametrize("columns", [None, "text=1,label=2", "text=Word,label=Tag"])
def test_columns_separated_by_commas_are_rejected(
    name: str, content: str, columns: str | None, read_text: Callable[..., Any]
) -> None:
    what = (
        f"{name}:1: commas separate the columns, which this task does not read, because a comma may be a word; "
        "separate words and tags with tabs or spaces"
    )
    with pytest.raises(DataError, match=re.escape(what)):
        read_text(content, name=name, columns=columns)


def test_a_csv_file_may_have_tabs(read_text: Callable[..., Any]) -> None:
    assert read_text("3,000\tCD\n,\t,\n", name="a.csv") == [(["3,000", ","], ("CD", ","))]


@given(st.lists(st.lists(st.tuples(WORDS, TAGS), min_size=1, max_size=5), min_size=1, max_size=4))
def test_sentences_on_one_line_equal_those_with_a_word_per_line(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[list[tuple[str, str]]]
) -> None:
    folder = tmp_path_factory.mktemp("files")
    columns = [list(zip(*sentence, strict=True)) for sentence in sentences]
    texts, tags = ([" ".join(each[index]) for each in columns] for index in (0, 1))
    rows = "".join(f"{text}\t{tag}\n" for text, tag in zip(texts, tags, strict=True))
    blocks = ("".join(f"{word}\t{tag}\n" for word, tag in sentence) for sentence in sentences)
    expected = [(list(of_words), of_tags) for of_words, of_tags in columns]
    assert read(row_file(write(folder / "a.conll", "\n".join(blocks)))) == expected
    assert read(row_file(write(folder / "a.tsv", rows), format="sentences")) == expected
    assert read(parallel(folder, "\n".join(texts), "\n".join(tags))) == expected


# Parallel files


def parallel(folder: Path, words: str, tags: str, **settings: Any) -> RowFile:
    path, tag_path = write(folder / "seq.in", words), write(folder / "seq.out", tags)
    return RowFile(path, RowSettings(**settings), tags=Path(tag_path))


def test_the_tags_may_be_in_a_parallel_file(tmp_path: Path) -> None:
    file = parallel(tmp_path, "EU rejects it\n\n希望\n2008\nOK\n", "B-ORG O O\n\nO O\nO O O O\nO\n\n")
    rows = list(read_words(file, labeled=True))
    assert [(words(row), row.tags) for row in rows] == [
        (["EU", "rejects", "it"], ("B-ORG", "O", "O")),
        (["希", "望"], ("O", "O")),
        (["2", "0", "0", "8"], ("O", "O", "O", "O")),
        (["OK"], ("O",)),
    ]
    assert [row.place for row in rows] == [f"{tmp_path}/seq.in:{number}" for number in (1, 3, 4, 5)]


def test_parallel_lines_that_do_not_match_name_both_files_lines_and_counts(tmp_path: Path) -> None:
    for content, tags, what in (
        ("a b\nc\n", "O O\nO O\n", "seq.in:2: the line has 1 word, but {}/seq.out:2 has 2 tags"),
        ("a b\n\nc\n", "O O\nO\nO\n", "seq.in:2: the line has 0 words, but {}/seq.out:2 has 1 tag"),
    ):
        with pytest.raises(DataError, match=re.escape(what.format(tmp_path))):
            read(parallel(tmp_path, content, tags))
    file = parallel(tmp_path, "a b\n" * 40 + "c\n", "O O\n" * 41, on_bad_row="skip")
    assert len(read(file)) == 40
    assert file.counts.skipped == {"misaligned": 1}


@pytest.mark.parametrize(("num_lines", "num_tags"), [(3, 2), (2, 3), (3, 0)])
def test_parallel_files_have_the_same_number_of_lines(tmp_path: Path, num_lines: int, num_tags: int) -> None:
    file = parallel(tmp_path, "a b\n" * num_lines + "\n\n", "O O\n" * num_tags, on_bad_row="skip")
    with pytest.raises(DataError, match=rf"seq.in: the file has {num_lines} lines, but .*seq.out has {num_tags}; "):
        read(file)


def test_settings_that_contradict_parallel_files_are_rejected(tmp_path: Path) -> None:
    for settings in ({"format": "conll"}, {"format": "jsonl"}, {"columns": "text=1,label=2"}):
        with pytest.raises(
            UsageError, match=r"seq.in: (`tags` cannot be used with the format|`columns` cannot be used)"
        ):
            read(parallel(tmp_path, "a b\n", "O O\n", **settings))
    with pytest.raises(UsageError, match=r"a.jsonl: `tags` cannot be used with the format jsonl"):
        list(read_words(RowFile("a.jsonl", tags=Path("seq.out")), labeled=True))
    with pytest.raises(UsageError, match=r"no-such-file: cannot be read"):
        read(RowFile(write(tmp_path / "seq.in", "a b\n"), tags=Path("no-such-file")))


# Real data


@pytest.mark.parametrize(
    ("name", "separator", "between"),
    [("msra_ner/test.tsv", "\t", ""), ("conll2003/eng.testb", " ", " "), ("ud_english_ewt/dev.tsv", "\t", " ")],
)
def test_real_files_are_the_same_in_every_form(
    data: Path, tmp_path: Path, name: str, separator: str, between: str
) -> None:
    expected = read(row_file(data / name))[:200]
    if between == "":
        assert not any(" " in word for each, _ in expected for word in each)
    texts = [between.join(each) for each, _ in expected]
    tags = [" ".join(each or ()) for _, each in expected]
    joined = "".join(f"{text}\t{tag}\n" for text, tag in zip(texts, tags, strict=True))
    assert read(row_file(write(tmp_path / "a.tsv.xz", joined), format="sentences")) == expected
    file = parallel(tmp_path, "\n".join(texts), "\n".join(tags))
    assert read(file) == expected
