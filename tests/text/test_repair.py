"""Any bytes and any str become valid text, and repairs are counted."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.text.repair import Repairs, repair_blocks, repair_text

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


@pytest.mark.parametrize(
    ("given_text", "expected", "repairs"),
    [
        (b"plain", "plain", Repairs()),
        (codecs.BOM_UTF8 + b"a", "a", Repairs(byte_order_marks=1)),
        ("\ufeffa", "a", Repairs(byte_order_marks=1)),
        (b"a\xff\xfeb", "a\ufffd\ufffdb", Repairs(bad_bytes=2)),
        (b"cut \xe4\xb8", "cut \ufffd\ufffd", Repairs(bad_bytes=2)),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd", Repairs(bad_bytes=3)),
        ("北京".encode("utf-16"), "北京", Repairs(byte_order_marks=1, utf16=1)),
        (codecs.BOM_UTF16_BE + "北".encode("utf-16-be"), "北", Repairs(byte_order_marks=1, utf16=1)),
        (codecs.BOM_UTF16_LE + b"a\0\x41", "a\ufffd", Repairs(byte_order_marks=1, utf16=1, bad_bytes=1)),
        (b"a\0b", "ab", Repairs(nuls=1)),
        ("a\ud800b\udcff", "a\ufffdb\ufffd", Repairs(lone_surrogates=2)),
        (b"a\r\nb\rc\n", "a\nb\nc\n", Repairs()),
        (b"end\r", "end\n", Repairs()),
        (b"", "", Repairs()),
    ],
)
def test_each_kind_of_damage_is_repaired_and_counted(given_text: bytes | str, expected: str, repairs: Repairs) -> None:
    counted = Repairs()
    assert repair_text(given_text, counted) == expected
    assert counted == repairs


@pytest.mark.parametrize(
    ("given_bytes", "encoding", "expected", "repairs"),
    [
        ("naïve €".encode("cp1252"), "cp1252", "naïve €", Repairs()),
        ("naïve".encode("latin-1"), "latin-1", "naïve", Repairs()),
        ("北京".encode("gb18030"), "gb18030", "北京", Repairs()),
        (b"a\x81b", "cp1252", "a\ufffdb", Repairs(bad_bytes=1)),  # not assigned
        (b"\xb1\xb1\xff", "gb18030", "北\ufffd", Repairs(bad_bytes=1)),
        ("北京\r\n".encode("utf-16-be"), "utf-16-be", "北京\n", Repairs()),
        ("北京".encode("utf-16"), "utf-16", "北京", Repairs()),
        (codecs.BOM_UTF16_LE + "北".encode("utf-16-le"), "utf-16-le", "北", Repairs(byte_order_marks=1)),
        (codecs.BOM_UTF8 + b"a", "utf-8", "a", Repairs(byte_order_marks=1)),
    ],
)
def test_a_given_encoding_is_used(given_bytes: bytes, encoding: str, expected: str, repairs: Repairs) -> None:
    counted = Repairs()
    assert repair_text(given_bytes, counted, encoding) == expected
    assert counted == repairs
    blocks = [given_bytes[place : place + 1] for place in range(len(given_bytes))]
    assert "".join(repair_blocks(blocks, Repairs(), encoding)) == expected


@given(st.binary())
def test_any_bytes_become_valid_text(content: bytes) -> None:
    assert_valid(repair_text(content))


@given(ANY_TEXT)
def test_any_str_becomes_valid_text_and_valid_text_is_unchanged(text: str) -> None:
    repaired = repair_text(text)
    assert_valid(repaired)
    assert repair_text(repaired.removeprefix("\ufeff")) == repaired.removeprefix("\ufeff")


def assert_valid(text: str) -> None:
    text.encode()  # fails on a lone surrogate
    assert "\0" not in text
    assert "\r" not in text


@given(st.one_of(st.binary(), ANY_TEXT.map(lambda text: text.encode("utf-16", "surrogatepass"))), st.data())
def test_the_result_does_not_depend_on_block_boundaries(content: bytes, cuts: st.DataObject) -> None:
    places = sorted(cuts.draw(st.lists(st.integers(0, len(content)))))
    blocks = [content[start:end] for start, end in zip([0, *places], [*places, len(content)], strict=True)]
    whole, cut = Repairs(), Repairs()
    assert "".join(repair_blocks(blocks, cut)) == repair_text(content, whole)
    assert cut == whole


def test_repairs_are_described_in_words() -> None:
    assert str(Repairs(bad_bytes=1200, nuls=1)) == "1,200 invalid bytes, 1 NUL character"
    assert not Repairs()
