"""Parse a docstring into plain prose and the items of its sections.

Two styles are supported: numpydoc (a title above a line of dashes, `name : type` above an indented description) and
Google (`Args:` above indented `name (type): description`).

- Doctests, literal blocks, most directives, signatures, tables, formulas and sections such as Examples are dropped.
- reST markup is replaced by its text. Text that was marked up as code or as a type is enclosed in marks, which are
  private-use characters; `plain` removes them.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

CODE, TYPE, END = "\ue000", "\ue001", "\ue002"  # marks: start of code, start of a type, end of either

MAX_TITLE = 40  # characters; a longer underlined line is not a section title
MAX_TYPE = 60  # characters; a longer text is a description, not a type
MIN_LETTERS = 0.85  # minimum fraction of letters and spaces in prose

_PARAMETERS = {"parameters", "other parameters", "args", "arguments", "keyword args", "keyword arguments", "params"}
_RETURNS = {"returns", "return", "yields", "yield"}
_OTHER_ITEMS = {"attributes", "raises", "warns", "receives"}
_DROPPED = {
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
    """A documented parameter or return value."""

    name: str  # empty for an unnamed return value; `x, y` for two parameters with one description
    type: str
    description: str  # prose with marks; empty if it is not prose


class Docstring(NamedTuple):
    """The prose of a docstring, with marks."""

    summary: str = ""  # the first paragraph
    description: tuple[str, ...] = ()  # the other paragraphs before the first section title
    parameters: tuple[Item, ...] = ()
    returns: tuple[Item, ...] = ()
    others: tuple[str, ...] = ()  # paragraphs of other sections

    @property
    def paragraphs(self) -> list[str]:
        """All paragraphs in order, with marks."""
        items = [item.description for item in (*self.parameters, *self.returns)]
        return [text for text in (self.summary, *self.description, *items, *self.others) if text]

    def without(self, known: Collection[str]) -> Docstring:
        """A copy without the paragraphs in `known`, and without the items they describe."""
        return Docstring(
            "" if self.summary in known else self.summary,
            tuple(text for text in self.description if text not in known),
            tuple(item for item in self.parameters if item.description not in known),
            tuple(item for item in self.returns if item.description not in known),
            tuple(text for text in self.others if text not in known),
        )


def plain(text: str) -> str:
    """The text without marks."""
    return text.replace(CODE, "").replace(TYPE, "").replace(END, "")


def parse_docstring(text: str) -> Docstring:
    """Parse a docstring as it is written in the source, indentation included."""
    description: list[str] = []
    parameters: list[Item] = []
    returns: list[Item] = []
    others: list[str] = []
    for section in _sections(inspect.cleandoc(plain(text)).split("\n")):
        if section.title in _PARAMETERS:
            parameters += _items(section)
        elif section.title in _RETURNS:
            # A name without a type is the type itself: `bool` above an indented description.
            returns += [item if item.type else Item("", _type(item.name), item.description) for item in _items(section)]
        elif section.title in _OTHER_ITEMS:
            others += [item.description for item in _items(section) if item.description]
        elif section.title not in _DROPPED:
            (description if section.is_first else others).extend(_paragraphs(section.lines))
    summary, *rest = description or [""]
    return Docstring(summary, tuple(rest), tuple(parameters), tuple(returns), tuple(others))


# Sections and their items


class _Section(NamedTuple):
    title: str  # in lowercase; empty for text without a title
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
        elif sections[-1].is_google and line[:1].strip():  # not indented: the section has ended
            sections.append(_Section("", [line]))
        else:
            sections[-1].lines.append(line)
    return sections


def _items(section: _Section) -> list[Item]:
    lines = textwrap.dedent("\n".join(section.lines)).split("\n")
    pattern = _GOOGLE_ITEM if section.is_google else _NUMPY_ITEM
    heads = [number for number, line in enumerate(lines) if line[:1].strip()]
    if section.is_google:  # continuation lines of an unnamed description are not indented either
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


def _type(text: str) -> str:
    """A type with markup, `optional` and the default removed; empty if the text is too long to be a type."""
    text = plain(_AFTER_TYPE.sub("", _INLINE.sub(_content, text))).strip()
    return text if len(text) <= MAX_TYPE and text.isprintable() else ""


# Paragraphs


def _paragraphs(lines: Sequence[str]) -> list[str]:
    return [text for block in _blocks(lines) if (text := _prose(block))]


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the lines of each paragraph and each bullet; skip literal blocks and directives."""
    block: list[str] = []
    block_indent = 0
    hidden: int | None = None  # skip lines that are indented more than this
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
                hidden = block_indent
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
            block_indent = block_indent if block else indent
            block.append(content)


def _prose(lines: Sequence[str]) -> str:
    """Join a paragraph into one line with marks; return an empty text if it is not prose."""
    if sum(1 for line in lines if _COLUMNS.search(line)) > 1:  # a table
        return ""
    text = " ".join(" ".join(lines).split())
    if not text.isprintable() or any(sign in text for sign in _NOT_PROSE):
        return ""
    text = " ".join(_INLINE.sub(_content, text).split())
    text = text.removesuffix(":") if text.endswith("::") else text
    return text if _is_prose(plain(text)) else ""


def _is_prose(text: str) -> bool:
    num_letters = sum(map(len, _LETTERS.findall(text)))
    is_text = num_letters + text.count(" ") >= MIN_LETTERS * len(text)
    return num_letters > 2 and is_text and not _SIGNATURE.fullmatch(text)


def _content(match: re.Match[str]) -> str:
    """The text that replaces inline markup."""
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
    elif role in _REFERENCE_ROLES:  # only a label, no text
        return ""
    if role in _REFERENCE_ROLES or role in _PLAIN_ROLES:
        return text
    return _marked(TYPE if role in _TYPE_ROLES else CODE, text.removeprefix("!").lstrip("."))


def _marked(mark: str, text: str) -> str:
    """Enclose code or a type in marks; `~a.b` becomes `b`."""
    if text.startswith("~"):
        text = text.rpartition(".")[2].removeprefix("~")
    text = text.strip()
    return f"{mark}{text}{END}" if text else ""
