"""Sentences out of a line or paragraph of English, Chinese or both; nothing but white space is lost.

1. One pattern finds the candidates: a run of terminators with the quotes and brackets that close after it, the
   white space behind, the quotes and brackets that open there, and the next character.
2. Chinese `。！？` end a sentence wherever they stand (`；` does not); `. ! ? …` do before white space and anything
   but a small letter, unless a single `.` belongs to an abbreviation.
3. An abbreviation is one of a list, an initial, or letters with dots. Some never end a sentence (`Mr.`), some not
   before a number (`No. 5`), the others only before a word that begins many sentences (`in the U.S. The`).
No candidate is looked at twice and what is looked at around it is bounded, so time is linear in the text.
"""

from __future__ import annotations

import re

_CANDIDATE = re.compile(
    r"""
    ([.!?…。！？｡．][.!?…。！？｡．]*)              # terminators; one and then more, since a search for one is quick
    ((?:[\]"'”’»›)}）］」』】〕*_]                   # what closes after them,
      |\[\d{1,3}\]|:\d{1,4}(?:[–-]\d{1,4})?)*)   # and marks of references: `.[12]`, `.:251–3`
    (\s*)
    [\["'“‘«‹({（［「『【〔*_]*(?=(.?))            # what opens, and the first character of the next sentence
    """,
    re.VERBOSE | re.DOTALL,
)
_CHINESE_TERMINATORS = frozenset("。！？｡")
_CHINESE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_GOES_ON = frozenset(".!?…。！？,;:，、；：》〉-–—~～·%=+&|")  # behind a terminator: the sentence is not over
_NEXT_WORD = re.compile(r"[^\W\d_]++(?!\.)")
_LETTERS_WITH_DOTS = re.compile(r"(?:[^\W\d_][.-]{1,2})+[^\W\d_]|Ph\.D")
_NUMBER = re.compile(r"\d|[IVXLC]{2,}\b|[VX]\b")  # `No. I did not` has none
_REACH = 16  # characters looked at before a terminator: more than an abbreviation has
_BEFORE_A_WORD = "\"'“‘«‹([{（「『*_-–—/"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NEVER_AN_END = _words(
    "mr mrs ms messrs mme mlle dr drs prof rev hon fr msgr ste sts gen col maj capt cpt cmdr cdr lt lieut sgt cpl "
    "pvt adm brig gov sen rep pres amb supt insp mt vs viz cf e.g i.e c.f eg ie approx attn"
)
_NO_END_BEFORE_A_NUMBER = _words(
    "no nos nr num vol vols pp pg fig figs art arts sec secs sect ch chap eq eqs op ex bk pt pts ser par para ref app "
    "ca circa fl ll vv ver cl"
)
_NUMBERED_LETTERS = "bcdflnpr"  # born, circa, died, folio, line, note, page, reigned
_SELDOM_AN_END = _words(
    "st inc co corp ltd llc bros jr sr esq etc al ave blvd rd dept dist est univ assn assoc mfg intl natl ed eds trans "
    "repr ft lb lbs oz jour proc acad inst soc amer brit phil mag geol rept "
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat"
)
_ABBREVIATIONS = _NEVER_AN_END | _NO_END_BEFORE_A_NUMBER | _SELDOM_AN_END
_FIRST_WORDS = _words(
    "the a an this that these those there here it its he his she her they their we our you your i my in on at by for "
    "from to with after before during since while when where as if although though however but and or so because both "
    "some many most all several each every one two three no not another other such what who why how then thus "
    "according despite under until once also only following between among unlike today later"
)


def split_sentences(text: str) -> list[str]:
    """The sentences of `text` in order, without the white space around them; a line feed is white space."""
    sentences = []
    start = 0
    is_small = text.islower()  # then a small letter says nothing
    for match in _CANDIDATE.finditer(text):
        marks, space, following = match.group(1, 3, 4)
        if match.start() == start:
            is_end = False  # there is nothing that it could end
        elif space and marks == "." and following.isupper():  # most of them
            is_end = not _is_abbreviation(text, start, match)
        elif not following:
            is_end = True
        elif not _CHINESE_TERMINATORS.isdisjoint(marks):
            is_end = following not in _GOES_ON
        elif not space:
            is_end = len(marks) == 1 and _is_between_chinese(text, match.start(), following)
        elif (following.islower() and not is_small) or following in _GOES_ON:
            is_end = False
        else:
            is_end = marks != "." or not _is_abbreviation(text, start, match)
        if is_end:
            sentences.append(text[start : match.end(2)])
            start = match.end(3)
    sentences.append(text[start:].rstrip())
    sentences[0] = sentences[0].lstrip()
    return [sentence for sentence in sentences if sentence]


def _is_between_chinese(text: str, position: int, following: str) -> bool:
    """Whether the terminator is one of English in Chinese text: `好!他说`, but not `3.5版` or `等…`."""
    return text[position] in ".!?" and bool(_CHINESE.match(text, position - 1) and _CHINESE.match(following))


def _is_abbreviation(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the `.` that was found belongs to the word before it, in a sentence that began at `start` and goes on."""
    position, next_position = match.start(), match.end()
    before = text[max(start, position - _REACH) : position]
    word = before.rpartition(" ")[2]
    if len(word) > 1 and word.isalpha() and word.lower() not in _ABBREVIATIONS:  # most of them
        return False
    words = before.split()
    word = words[-1].lstrip(_BEFORE_A_WORD) if words else ""
    if (last := word[word.rfind("-") + 1 :].lower()) in _SELDOM_AN_END:  # `Sept.-Oct. 1973`
        word = last
    if len(word) == 1 and word.islower():  # `Arver v. United States`, `c. 1850`, but an end after `112 m.`
        return word == "v" or (word in _NUMBERED_LETTERS and _NUMBER.match(text, next_position) is not None)
    lowered = word.lower()
    if lowered in _NEVER_AN_END:
        return True
    if lowered in _NO_END_BEFORE_A_NUMBER:
        return _NUMBER.match(text, next_position) is not None
    if lowered in _SELDOM_AN_END or (len(word) == 1 and word.isupper()) or _LETTERS_WITH_DOTS.fullmatch(word):
        next_word = _NEXT_WORD.match(text, next_position)
        return next_word is None or next_word[0].lower() not in _FIRST_WORDS
    # the number of an item: `1. The first of them`
    return word.isdigit() and len(words) == 1 and position - start <= len("100")
