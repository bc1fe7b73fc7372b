"""`bertmill tokenize`."""

import json
from pathlib import Path

import pytest

from bertmill.text.vocabulary import SPECIAL_TOKENS
from tests.conftest import RunCommand


def test_a_table_shows_each_piece_with_what_it_covers(bertmill: RunCommand) -> None:
    done = bertmill("tokenize", "--model", "minilm", "--text", "Café 北京")
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[:5] == [
        ["piece", "id", "characters", "word", "covers"],
        ["[CLS]", "101"],
        ["cafe", "7668", "0..4", "0", "Café"],
        ["北", "1781", "5..6", "1", "北"],
        ["京", "1755", "6..7", "2", "京"],
    ]


def test_json_lines_have_all_fields_for_files_and_standard_input(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo [MASK]\n")
    from_file = bertmill("tokenize", "--model", "minilm", "a.txt", "--json")
    records = [json.loads(line) for line in from_file.stdout.splitlines()]
    assert [record["text"] for record in records] == ["one", "two [MASK]"]
    assert records[1]["pieces"] == ["[CLS]", "two", "[", "mask", "]", "[SEP]"]  # user text, not a special token
    assert records[1]["offsets"][1] == [0, 3]
    assert records[1]["words"] == [None, 0, 1, 2, 3, None]
    assert (
        bertmill("tokenize", "--model", "minilm", "-", "--json", stdin="one\n\ntwo [MASK]\n").stdout == from_file.stdout
    )


def test_json_lines_have_no_control_characters(bertmill: RunCommand) -> None:
    text = "a\x1b[1m\x7f\x9b\u202e\u2028 北京 😀"
    printed = bertmill("tokenize", "--model", "minilm", "--text", text, "--json").stdout
    assert printed.rstrip("\n").isprintable()
    assert "北京 😀" in printed
    assert json.loads(printed)["text"] == text


def test_a_pair_is_one_sequence(bertmill: RunCommand) -> None:
    words = ["tokenize", "--model", "minilm", "--text", "a", "--pair", "b", "--json"]
    assert json.loads(bertmill(*words).stdout)["pieces"] == ["[CLS]", "a", "[SEP]", "b", "[SEP]"]
    assert json.loads(bertmill(*words, "--no-special-tokens").stdout)["pieces"] == ["a", "b"]
    assert bertmill(*words[:3], "--pair", "b").returncode == 2


def test_the_encoding_of_files_can_be_set(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("北京\n".encode("gb18030"))
    words = ["tokenize", "--model", "minilm", "a.txt", "--json", "--encoding"]
    assert json.loads(bertmill(*words, "gb18030").stdout)["text"] == "北京"
    refused = bertmill(*words, "gb")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "--encoding: must be a text encoding such as latin-1, cp1252, gb18030 or utf-16 (got 'gb')" in refused.stderr


def test_case_can_be_kept(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "É", "e"]))
    words = ["tokenize", "--model", "vocab.txt", "--text", "É", "--json"]
    assert json.loads(bertmill(*words).stdout)["pieces"][1] == "e"
    assert json.loads(bertmill(*words, "--cased").stdout)["pieces"][1] == "É"


def test_repairs_are_reported(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"some text with a bad \xff byte\r\n")
    done = bertmill("tokenize", "--model", "minilm", "a.txt")
    assert done.stderr == "repaired: 1 invalid byte\n"
    assert bertmill("tokenize", "--model", "minilm", "a.txt", "--quiet").stderr == ""


GOOD = "\n".join([*SPECIAL_TOKENS, "a"])


@pytest.mark.parametrize(
    ("files", "words", "code", "message"),
    [
        ({}, ["--model", "minilm", "absent.txt"], 2, "absent.txt: no such file"),
        ({"d/.x": b"x"}, ["--model", "minilm", "d"], 3, "d: the folder contains no files"),
        ({"a.txt": b""}, ["--model", "minilm", "a.txt"], 3, "a.txt: contains no text"),
        ({"a.bin": bytes(range(256))}, ["--model", "minilm", "a.bin"], 3, "a.bin: is not UTF-8 text"),
        ({"v": b""}, ["--model", "v", "--text", "a"], 4, "v: the vocabulary is empty"),
        ({"v": f"{GOOD}\na".encode()}, ["--model", "v", "--text", "a"], 4, "v:7: 'a' occurs 2 times"),
        ({"v": b"a\nb"}, ["--model", "v", "--text", "a"], 4, "v: is not a vocabulary: it contains none of [PAD]"),
        (
            {"v": b"A text.\n\nWith blank lines.\n\n"},
            ["--model", "v", "--text", "a"],
            4,
            "learn a vocabulary with `bert",
        ),
        ({"v": b"[PAD]\nb"}, ["--model", "v", "--text", "a"], 4, "v: lacks the special tokens [UNK]"),
        ({}, ["--model", "absent", "--text", "a"], 2, "is named 'absent'"),
        ({"m/x": b""}, ["--model", "m", "--text", "a"], 2, "m: contains neither tokenizer.json nor vocab.txt"),
        ({}, ["--model", "minilm"], 2, "no input was given"),
        ({"a.txt": b"a"}, ["--model", "minilm", "a.txt", "--text", "a"], 2, "not both"),
    ],
)
def test_bad_input_gives_one_line_and_the_right_exit_code(
    bertmill: RunCommand, tmp_path: Path, files: dict[str, bytes], words: list[str], code: int, message: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    done = bertmill("tokenize", *words)
    assert message in done.stderr
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
