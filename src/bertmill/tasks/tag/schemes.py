"""Tagging schemes: IOB1, IOB2, BIOES and BMES are notations for the same spans of words.

    IOB2    B-X starts a span, I-X continues it                              B-X I-X O B-X B-X
    IOB1    I-X also starts a span; B-X is used only directly after an X     I-X I-X O I-X B-X
    BIOES   E-X ends a span, S-X is a span of one word                       B-X E-X O S-X S-X
    BMES    like BIOES with M instead of I; L instead of E and U instead of S are also read

Single-letter tags (`B`, `M`, …) mark spans of one kind, as in word segmentation. Tags of any scheme are read as the
CoNLL scorer reads them: a tag that cannot continue the previous one starts a new span (an I-X after O or after another
kind). Strict reading accepts only valid IOB2 spans, which start with B-X. The model learns all tags as IOB2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

OUTSIDE = "O"
NO_KIND = "_"  # the kind of single-letter tags
_PREFIXES = dict(zip("BIESMLU", "BIESIES", strict=True))
_TAG = re.compile(r"[BIESMLU]-.+")


class Entity(NamedTuple):
    """A span of words with its kind."""

    kind: str
    first: int  # index of the first word
    end: int  # index after the last word


def entities(tags: Iterable[str]) -> list[Entity]:
    """Return the spans that the tags of a sentence mark, in any scheme. Invalid sequences are repaired."""
    found = []
    start, kind, is_open = 0, "", False  # the previous span, and whether the next tag may continue it
    is_inside = False
    for place, tag in enumerate([*tags, OUTSIDE]):
        prefix, kind_of_tag = split_tag(tag)
        continues = is_open and prefix in "IE" and kind_of_tag == kind
        if is_inside and not continues:
            found.append(Entity(kind, start, place))
        is_inside = prefix != OUTSIDE
        if is_inside and not continues:
            start, kind = place, kind_of_tag
        is_open = prefix in "BI"
    return found


def strict_entities(tags: Iterable[str]) -> list[Entity]:
    """Return the spans of IOB2 tags that start with B. An I that does not continue a span is ignored."""
    tags = list(tags)
    return [entity for entity in entities(tags) if tags[entity.first][0] == "B"]


def split_tag(tag: str) -> tuple[str, str]:
    """Split a tag into its prefix (B, I, E, S or O) and its kind."""
    if tag == OUTSIDE:
        return OUTSIDE, NO_KIND
    return _PREFIXES[tag[0]], tag[2:] or NO_KIND


def kinds(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct kinds of spans that these tags mark."""
    return tuple(dict.fromkeys(split_tag(tag)[1] for tag in tags if tag != OUTSIDE))


def means_span(tag: str) -> bool:
    """Whether a tag belongs to one of the schemes, including O."""
    return tag == OUTSIDE or tag in _PREFIXES or bool(_TAG.fullmatch(tag))


def odd_tags(tags: set[str]) -> set[str]:
    """Return the tags that belong to no scheme if most tags do. They are typos: plain tags do not look like B-X."""
    odd = {tag for tag in tags if not means_span(tag)}
    return odd if len(odd) < sum(map(bool, map(_TAG.fullmatch, tags))) else set()


def iob2(spans: Iterable[Entity], num_words: int) -> list[str]:
    """Return the IOB2 tags of a sentence with these spans."""
    tags = [OUTSIDE] * num_words
    for kind, first, end in spans:
        begin, inside = iob2_tags(kind)
        tags[first:end] = [begin] + [inside] * (end - first - 1)
    return tags


def iob2_tags(kind: str) -> tuple[str, str]:
    """Return the tags of the first word and of the other words of a span of this kind."""
    return ("B", "I") if kind == NO_KIND else (f"B-{kind}", f"I-{kind}")


def scheme_of(sentences: Iterable[Sequence[str]]) -> str | None:
    """Return the name of the scheme of these tags, or None if they are plain tags, which do not mark spans."""
    tags: set[str] = set()
    num_begun_by_i = num_begun_by_b = 0  # spans by their first tag; B counts only where IOB1 would write I
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
