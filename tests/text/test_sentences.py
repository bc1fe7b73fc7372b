"""Sentences end where a reader would end them, and only whitespace is lost."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bertmill.text.sentences import split_sentences
from tests.linear_time import assert_linear_time

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
# Strings that decide where sentences end, so that random texts reach every branch.
PARTS = [
    *".!?…。！？｡．；\"'”’)」》(“「[]* \n\t,-/：aAé中1",
    "...",
    "[12]",
    ". ",
    "No. 5",
    "Mr. ",
    "U.S. ",
    "The ",
    "J. ",
]
TEXT_OF_PARTS = st.lists(st.sampled_from(PARTS)).map("".join)

# `|` separates sentences: it stands for a space in English and for nothing in Chinese.
ENGLISH = [
    "One.|Two!|Three?|Four",
    "Mr. Smith met Dr. Jones.|They left.",
    "Use one, e.g. Python.|It is i.e. That one.",
    "He lives in the U.S. Senate building.|He came from the U.S.|The trip was long.",
    "J. K. Rowling wrote it.|J. R. R. Tolkien did not, nor J.-L. Picard.",
    "King George V.|This was long ago.",
    "See No. 5 and vol. 3 and pp. 7.|No.|He did not.",
    "See Vol. II of it.",
    "No.|I did not.",
    "On Jan. 5 and Sept. 6 it rained.|Then came Oct. 7.",
    "Apple Inc. said so.|Apple Inc.|It did.|Sammy Davis Jr. Park",
    "About 3.14 or .5 of version 1.2.3 is at www.example.com/a.b?c=d! today.",
    "In Arver v. United States it was so (c. 1850).|It is 112 m.|Federal buildings are lower.",
    'He said "No."|She said "Yes!"|"What?" he asked.',
    "He left (at last.)|She stayed (too).|[Note.]|End",
    "“Go.”|“Why?”|“Now.”",
    "Wait... what?|Yes...|Then",
    "What?!|No!!!|Really?..|Oh",
    "So it is.[12]|Then came the others.[3][4]|End.",
    "So it is.:251|Then came pages.:32–34|End.",
    "It ran in Sept.-Oct. 1973.|He lived in Kiowa St.|He left for St. Louis.",
    "1. The first of them.|2. The second.",
    "It was 1988.|120 students came.|In 1989.|It ended.",
    "Yes, the Livre . . . mis en tablature.|Good.",
    "At 5 p.m. Monday he left.|At 6 p.m.|The others did.",
    "He has a Ph.D. in law.|Good.",
    "etc. and so on, vs. Them.|Good",
    "all is small.|there is no capital.|mr. smith too.",
    "Spaced out .|As tokenizers leave it .|Yes",
    "BERT is a model.|它很好。|It is good.|好的。",
    "Line one\ngoes on.|Line two.",
]
CHINESE = [
    "你好。|再见！|真的吗？|是",
    "他说：“你好。”|她笑了。",
    "「走吧！」|他说。",
    "（很晚。）|然后",
    "一；二；三。|四",
    "真的吗？！|是！！|好。",
    "等等……他走了。|好",
    "他来了……",
    "圆周率是3.14。|版本是1.2版。",
    "《妈妈咪呀！》是电影。|《你的名字。》也是。",
    "好!|他说.|我说?|你说",
    "“好！”，他说。",
    "J. K. 罗琳写了它。",
]


@pytest.mark.parametrize(("marked", "between"), [(m, " ") for m in ENGLISH] + [(m, "") for m in CHINESE])
def test_sentences_end_where_a_reader_would_end_them(marked: str, between: str) -> None:
    assert split_sentences(marked.replace("|", between)) == marked.split("|")


@given(ANY_TEXT | TEXT_OF_PARTS)
@example("")
@example(" \n\u3000")
@example(". . .")
def test_sentences_contain_all_text_but_whitespace(text: str) -> None:
    sentences = split_sentences(text)
    rest = text
    for sentence in sentences:
        assert sentence
        assert sentence == sentence.strip()
        gap, found, rest = rest.partition(sentence)
        assert found
        assert not gap.strip()
    assert not rest.strip()


@pytest.mark.slow  # measures time
@pytest.mark.parametrize("unit", [".", '"', ". ", '." ', "。", "A. ", "a.\t", '.." (', "[1].", ".[1]", "No. ", ".\n"])
def test_time_is_linear_in_hostile_text(unit: str) -> None:
    assert_linear_time(split_sentences, unit * (1_000_000 // len(unit)))


def test_sentences_of_real_text_have_typical_lengths(read_lines: Callable[[str, int], list[str]]) -> None:
    for name, low, high in [("text/enwiki-heldout.txt.xz", 100, 200), ("text/zhwiki.txt.xz", 25, 60)]:
        sentences = [sentence for line in read_lines(name, 1_000_000) for sentence in split_sentences(line)]
        assert low < sum(map(len, sentences)) / len(sentences) < high
