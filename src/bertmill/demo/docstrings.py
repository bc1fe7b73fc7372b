"""A docstring as clean prose and as the items of its sections.

Two styles are understood: numpydoc's (a title above a line of dashes, `name : type` above an indented description) and
Google's (`Args:` above indented `name (type): description`). Doctests, literal blocks, directives, signatures, tables,
formulas and sections such as Examples are left out. Of reST markup, the text stays. What the markup presents as code or
as a type is kept between marks, characters for private use, for those who want to know; `plain` removes them.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

CODE, TYPE, END = "\ue000", "\ue001", "\ue002"  # marks: before code, before a type, behind either
_MARKS = dict.fromkeys(map(ord, (CODE, TYPE, END)))

MAX_TITLE = 40  # characters
MAX_TYPE = 60  # characters; what is longer describes more than a type
MIN_LETTERS = 0.85  # the share of letters and spaces in prose

_PARAMETERS = {"parameters", "other parameters", "args", "arguments", "keyword args", "keyword arguments", "params"}
_RETURNS = {"returns", "return", "yields", "yield"}
_OTHER_ITEMS = {"attributes", "raises", "warns", "receives"}
_LEFT_OUT = {
    *("example", "examples", "references", "reference", "see also", "methods", "shape", "input", "inputs", "output"),
    *("outputs", "usage", "todo", "routine listings", "contents"),
}
_UNDERLINE = re.compile(r"([-=~^*])\1{2,}")
_GOOGLE_TITLE = re.compile(
    r"(args|arguments|keyword arg(?:ument)?s|parameters|params|returns?|yields?|raises|attributes|notes?|warnings?"
    r"|examples?|shape|inputs?|outputs?|references?|see also|usage|todo)\s*::?\s*",
    re.IGNORECASE,
)
_GOOGLE_ITEM = re.compile(r"(\*{0,2}\w[\w.]*)\s*(?:\((.*)\))?\s*:(?:\s+(.*)|$)")
_NUMPY_ITEM = re.compile(r"(\*{0,2}\w[\w.*, ]*?)\s*:(?:\s+(.*)|$)")
_AFTER_TYPE = re.compile(r"[,;]?\s*\(?\b(?:optional|default)\b.*", re.IGNORECASE)

_DIRECTIVE = re.compile(r"\.\.(?:\s+(?:([\w-]+)::)?\s*|$)")
_PROSE_DIRECTIVES = {"note", "warning", "important", "tip", "caution", "attention", "hint"}
_BULLET = re.compile(r"(?:[-*+•]|\d{1,2}[.)]|\([a-z\d]\)|:\w[^:`]*:)\s+")
_COLUMNS = re.compile(r"\S {3,}\S")
_NOT_PROSE = (":math:", ">>>", "->", "\\", "$", "%(", "{{", "===", "---")
_SIGNATURE = re.compile(r"[\w.]+\(.*\)[.:]?")
_LETTERS = re.compile(r"[^\W\d_]+")
_INLINE = re.compile(
    r"""
    :(?P<role>[a-zA-Z][\w:+.-]*):`(?P<target>[^`]+)`       # :func:`name`, :ref:`title <target>`
    | ``(?P<literal>.+?)``
    | `(?P<link>[^`<]+?)\s*(?:<[^`>]*>)?`__?(?!\w)          # `title <address>`_
    | `(?P<code>[^`]+)`
    | (?<![\w*])\*{1,2}(?P<emphasis>[^*\s](?:[^*]*[^*\s])?)\*{1,2}(?![\w*])
    | \s?\[[\w.*\#-]+\]_(?!\w)                              # a footnote
    """,
    re.VERBOSE,
)
_TYPE_ROLES = {"class", "exc", "type"}
_REFERENCE_ROLES = {"ref", "doc", "numref", "cite", "footcite", "issue", "pr", "user"}
_PLAIN_ROLES = {"term", "pep", "rfc", "abbr", "sup", "sub", "emphasis", "strong"}


class Item(NamedTuple):
    """A parameter or a returned value: `x : int` with its description."""

    name: str  # empty for a value without one; `x, y` for two that share a description
    type: str
    description: str  # marked prose, empty if it is not prose


class Docstring(NamedTuple):
    """The prose of a docstring, marked. What is not prose is absent."""

    summary: str = ""  # the first paragraph
    description: tuple[str, ...] = ()  # the other paragraphs before the first section
    parameters: tuple[Item, ...] = ()
    returns: tuple[Item, ...] = ()
    others: tuple[str, ...] = ()  # paragraphs of other sections

    @property
    def paragraphs(self) -> list[str]:
        """All prose in order, marked."""
        items = [item.description for item in (*self.parameters, *self.returns)]
        return [text for text in (self.summary, *self.description, *items, *self.others) if text]

    def without(self, known: Collection[str]) -> Docstring:
        """The same without the paragraphs in `known`."""

        def kept(items: Sequence[Item]) -> tuple[Item, ...]:
            return tuple(item for item in items if item.description not in known)

        description, others = (
            tuple(text for text in part if text not in known) for part in (self.description, self.others)
        )
        summary = "" if self.summary in known else self.summary
        return Docstring(summary, description, kept(self.parameters), kept(self.returns), others)


def plain(text: str) -> str:
    """The text without marks."""
    return text.translate(_MARKS)


def parse_docstring(text: str) -> Docstring:
    """The prose of a docstring as it stands in the source."""
    description: list[str] = []
    parameters: list[Item] = []
    returns: list[Item] = []
    others: list[str] = []
    for section in _sections(inspect.cleandoc(plain(text)).split("\n")):
        if section.title in _PARAMETERS:
            parameters += _items(section)
        elif section.title in _RETURNS:
            returns += _returned(section)
        elif section.title in _OTHER_ITEMS:
            others += [item.description for item in _items(section) if item.description]
        elif section.title not in _LEFT_OUT:
            (description if section.is_first else others).extend(_paragraphs(section.lines))
    summary, *rest = description or [""]
    return Docstring(summary, tuple(rest), tuple(parameters), tuple(returns), tuple(others))


# Sections and their items


class _Section(NamedTuple):
    title: str  # in small letters; empty for text without one
    lines: list[str]
    is_google: bool = False
    is_first: bool = False


def _sections(lines: Sequence[str]) -> list[_Section]:
    sections = [_Section("", [], is_first=True)]
    is_underline = False
    for line, following in pairwise([*lines, ""]):
        title = line.strip()
        if is_underline:
            is_underline = False
        elif 0 < len(title) <= MAX_TITLE and _UNDERLINE.fullmatch(following.strip()):
            is_underline = True
            sections.append(_Section(title.lower().rstrip(":"), []))
        elif match := _GOOGLE_TITLE.fullmatch(line):
            sections.append(_Section(match[1].lower(), [], is_google=True))
        elif sections[-1].is_google and line[:1].strip():  # not indented: the section is over
            sections.append(_Section("", [line]))
        else:
            sections[-1].lines.append(line)
    return sections


def _items(section: _Section) -> list[Item]:
    lines = textwrap.dedent("\n".join(section.lines)).split("\n")
    pattern = _GOOGLE_ITEM if section.is_google else _NUMPY_ITEM
    heads = [number for number, line in enumerate(lines) if line[:1].strip()]
    if section.is_google:  # a description without a name is not indented either
        heads = [number for number in heads if number == heads[0] or pattern.fullmatch(lines[number])]
    found = []
    for start, end in pairwise([*heads, len(lines)]):
        match, body = pattern.fullmatch(lines[start]), lines[start + 1 : end]
        if match is None and section.is_google:
            name, kind, body = "", "", lines[start:end]
        elif match is None:
            name, kind = lines[start].strip(), ""
        elif section.is_google:
            name, kind, body = match[1], match[2] or "", [match[3] or "", *body]
        else:
            name, kind = match[1], match[2] or ""
        found.append(Item(name, _type(kind), " ".join(_paragraphs(body))))
    return found


def _returned(section: _Section) -> list[Item]:
    """The items of a section on returned values: what stands alone before a description is a type."""
    return [item if item.type else Item("", _type(item.name), item.description) for item in _items(section)]


def _type(text: str) -> str:
    """A type without markup and without `optional` or a default; empty if it is a whole description."""
    text = plain(_AFTER_TYPE.sub("", _INLINE.sub(_content, text))).strip()
    return text if len(text) <= MAX_TYPE else ""


# Paragraphs


def _paragraphs(lines: Sequence[str]) -> list[str]:
    return [text for block in _blocks(lines) if (text := _prose(block))]


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """The lines of each paragraph and of each bullet, without literal blocks and directives."""
    block: list[str] = []
    start = 0  # the indentation of the block
    hidden: int | None = None  # lines that are indented deeper do not count
    for line in [*lines, ""]:
        content = line.strip()
        indent = len(line) - len(line.lstrip())
        if hidden is not None and content:
            if indent > hidden:
                continue
            hidden = None
        directive, bullet = _DIRECTIVE.match(content), _BULLET.match(content)
        if block and (not content or directive or bullet):
            if block[-1].endswith("::"):
                hidden = start
            yield block
            block = []
        if directive:
            if directive[1] not in _PROSE_DIRECTIVES:
                hidden = indent
                continue
            content = content[directive.end() :]
        elif bullet:
            content = content[bullet.end() :]
        if content:
            start = indent if not block else start
            block.append(content)


def _prose(lines: Sequence[str]) -> str:
    """A paragraph as one line, marked; empty if it is not prose."""
    if sum(1 for line in lines if _COLUMNS.search(line)) > 1:  # a table
        return ""
    text = " ".join(" ".join(lines).split())
    if any(sign in text for sign in _NOT_PROSE):
        return ""
    text = _INLINE.sub(_content, text).strip()
    text = text.removesuffix(":") if text.endswith("::") else text
    return text if _is_prose(plain(text)) else ""


def _is_prose(text: str) -> bool:
    num_letters = sum(map(len, _LETTERS.findall(text)))
    is_text = num_letters + text.count(" ") >= MIN_LETTERS * len(text)
    return num_letters > 2 and is_text and not _SIGNATURE.fullmatch(text)


def _content(match: re.Match[str]) -> str:
    """What stays of inline markup."""
    kind = match.lastgroup
    if kind is None:  # a footnote
        return ""
    text = str(match[kind]).strip()
    if kind == "target":
        return _role(match["role"].rpartition(":")[2].lower(), text)
    return _marked(CODE, text) if kind in ("literal", "code") else text


def _role(role: str, text: str) -> str:
    title, has_target, _ = text.partition("<")
    if has_target:
        text = title.strip()
    elif role in _REFERENCE_ROLES:  # a label, not a text
        return ""
    if role in _REFERENCE_ROLES or role in _PLAIN_ROLES:
        return text
    return _marked(TYPE if role in _TYPE_ROLES else CODE, text.removeprefix("!").lstrip("."))


def _marked(mark: str, text: str) -> str:
    """Code or a type between marks; `~a.b` is shown as `b`."""
    if text.startswith("~"):
        text = text.rpartition(".")[2].removeprefix("~")
    return f"{mark}{text}{END}" if text else ""
