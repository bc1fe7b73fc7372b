"""Tags as spans of words: what people call IOB1, IOB2, BIOES and BMES are ways to write the same spans.

    IOB2    B-X begins a span, I-X goes on                        B-X I-X O B-X B-X
    IOB1    I-X begins one too; B-X only right after another X    I-X I-X O I-X B-X
    BIOES   the last word is E-X, a single one S-X                B-X E-X O S-X S-X
    BMES    the same with M for I; also L for E and U for S
Tags of one letter (`B`, `M`, …) are spans of one kind, as in word segmentation. What a sequence of tags means is read
as the CoNLL scorer does, whatever the scheme: impossible sequences are repaired, so that a span begins wherever a tag
does not go on from the one before (an I-X after O or after another kind begins a span). Read strictly, as IOB2, a span
is a B-X with the I-X after it and nothing else. All tags are learned as IOB2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

OUTSIDE = "O"
NO_KIND = "_"  # of tags that are one letter
_PREFIXES = dict(zip("BIESMLU", "BIESIES", strict=True))
_TAG = re.compile(r"[BIESMLU]-.+")


class Entity(NamedTuple):
    kind: str
    first: int  # word
    end: int  # the word after the last


def entities(tags: Iterable[str]) -> list[Entity]:
    """The spans that the tags of a sentence mean, impossible sequences repaired."""
    found = []
    start, kind, goes_on = 0, "", False  # of the span before, and whether it may go on
    is_inside = False
    for place, tag in enumerate([*tags, OUTSIDE]):
        prefix, kind_of_tag = split_tag(tag)
        continues = goes_on and prefix in "IE" and kind_of_tag == kind
        if is_inside and not continues:
            found.append(Entity(kind, start, place))
        is_inside = prefix != OUTSIDE
        if is_inside and not continues:
            start, kind = place, kind_of_tag
        goes_on = prefix in "BI"
    return found


def strict_entities(tags: Iterable[str]) -> list[Entity]:
    """The spans of IOB2 tags that begin with B; an I that does not go on from a tag before means nothing."""
    tags = list(tags)
    return [entity for entity in entities(tags) if tags[entity.first][0] == "B"]


def split_tag(tag: str) -> tuple[str, str]:
    """Prefix (B, I, E, S or O) and kind."""
    if tag == OUTSIDE:
        return OUTSIDE, NO_KIND
    return _PREFIXES[tag[0]], tag[2:] or NO_KIND


def kinds(tags: Iterable[str]) -> tuple[str, ...]:
    """The kinds of spans that these tags mark, each once."""
    return tuple(dict.fromkeys(split_tag(tag)[1] for tag in tags if tag != OUTSIDE))


def means_span(tag: str) -> bool:
    """Whether a tag is O or one of any of the schemes."""
    return tag == OUTSIDE or tag in _PREFIXES or bool(_TAG.fullmatch(tag))


def odd_tags(tags: set[str]) -> set[str]:
    """Tags that are of no scheme where most are: slips of the pen, since plain tags do not look like B-X and I-X."""
    odd = {tag for tag in tags if not means_span(tag)}
    return odd if len(odd) < sum(map(bool, map(_TAG.fullmatch, tags))) else set()


def iob2(spans: Iterable[Entity], num_words: int) -> list[str]:
    """The tags of a sentence with these spans."""
    tags = [OUTSIDE] * num_words
    for kind, first, end in spans:
        begin, inside = iob2_tags(kind)
        tags[first:end] = [begin] + [inside] * (end - first - 1)
    return tags


def iob2_tags(kind: str) -> tuple[str, str]:
    """How the first word of a span of this kind is tagged, and how its others are."""
    return ("B", "I") if kind == NO_KIND else (f"B-{kind}", f"I-{kind}")


def scheme_of(sentences: Iterable[Sequence[str]]) -> str | None:
    """The name of the scheme that tags are written in; None if they are plain tags, each for itself."""
    tags: set[str] = set()
    num_begun_by_i = num_begun_by_b = 0  # spans; of those by B only such as IOB1 would have begun by I
    for sentence in sentences:
        tags.update(sentence)
        for before, tag in zip([OUTSIDE, *sentence], sentence, strict=False):
            begins = before[:1] not in "BI" or before[1:] != tag[1:]
            num_begun_by_i += begins and tag[:1] == "I"
            num_begun_by_b += begins and tag[:1] == "B"
    inside = tags - {OUTSIDE}
    is_one_letter = "B" in inside and inside <= set(_PREFIXES) and bool(inside & set("IME"))
    if not (is_one_letter or (inside and all(map(_TAG.fullmatch, inside)))):
        return None
    prefixes = {tag[0] for tag in inside}
    if prefixes & set("ESLU"):
        return "BMES" if "M" in prefixes else "BIOES"
    return "IOB1" if num_begun_by_i and not num_begun_by_b else "IOB2"
