"""Split a line or paragraph of English, Chinese or mixed text into sentences; only whitespace is lost.

1. One pattern finds candidates: a run of terminators with closing quotes and brackets, the whitespace after it, opening
   quotes and brackets, and the next character.
2. Chinese `。！？` end a sentence (`；` does not), unless a mark such as `，` follows. `. ! ? …` end one before
   whitespace and anything but a lowercase letter, unless a single `.` belongs to an abbreviation.
3. An abbreviation is a listed word, an initial, or letters with dots. Some never end a sentence (`Mr.`), some do not
   before a number (`No. 5`), and the others do only before a word that begins many sentences (`in the U.S. The`).

Each candidate is examined once, with a bounded context, so time is linear in the length of the text.
"""

from __future__ import annotations

import re

_CANDIDATE = re.compile(
    r"""
    ([.!?…。！？｡．][.!?…。！？｡．]*)              # terminators; written as one plus more, which is faster to search
    ((?:[\]"'”’»›)}）］」』】〕*_]                   # closing marks,
      |\[\d{1,3}\]|:\d{1,4}(?:[–-]\d{1,4})?)*)   # and reference marks: `.[12]`, `.:251–3`
    (\s*)
    [\["'“‘«‹({（［「『【〔*_]*(?=(.?))            # opening marks, and the first character of the next sentence
    """,
    re.VERBOSE | re.DOTALL,
)
_CHINESE_TERMINATORS = frozenset("。！？｡")
_CHINESE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_CONTINUES = frozenset(".!?…。！？,;:，、；：》〉-–—~～·%=+&|")  # after a terminator: the sentence continues
_NEXT_WORD = re.compile(r"[^\W\d_]++(?!\.)")
_LETTERS_WITH_DOTS = re.compile(r"(?:[^\W\d_][.-]{1,2})+[^\W\d_]|Ph\.D")
_NUMBER = re.compile(r"\d|[IVXLC]{2,}\b|[VX]\b")  # `I` alone is not a number: `No. I did not`
_REACH = 16  # characters examined before a terminator: more than any abbreviation has
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
_RARELY_AN_END = _words(
    "st inc co corp ltd llc bros jr sr esq etc al ave blvd rd dept dist est univ assn assoc mfg intl natl ed eds trans "
    "repr ft lb lbs oz jour proc acad inst soc amer brit phil mag geol rept "
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat"
)
_ABBREVIATIONS = _NEVER_AN_END | _NO_END_BEFORE_A_NUMBER | _RARELY_AN_END
_FIRST_WORDS = _words(
    "the a an this that these those there here it its he his she her they their we our you your i my in on at by for "
    "from to with after before during since while when where as if although though however but and or so because both "
    "some many most all several each every one two three no not another other such what who why how then thus "
    "according despite under until once also only following between among unlike today later"
)


def split_sentences(text: str) -> list[str]:
    """Split `text` into sentences, without the whitespace around them; a line feed counts as whitespace."""
    sentences = []
    start = 0
    is_lower = text.islower()  # if so, a lowercase letter may begin a sentence
    for match in _CANDIDATE.finditer(text):
        marks, space, following = match.group(1, 3, 4)
        if match.start() == start:
            is_end = False  # there is no sentence to end
        elif space and marks == "." and following.isupper():  # the most common case
            is_end = not _is_abbreviation(text, start, match)
        elif not following:
            is_end = True
        elif not _CHINESE_TERMINATORS.isdisjoint(marks):
            is_end = following not in _CONTINUES
        elif not space:
            is_end = len(marks) == 1 and _is_between_chinese(text, match.start(), following)
        elif (following.islower() and not is_lower) or following in _CONTINUES:
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
    """Whether an English terminator stands between Chinese characters: `好!他说`, but not `3.5版` or `等…`."""
    return text[position] in ".!?" and bool(_CHINESE.match(text, position - 1) and _CHINESE.match(following))


def _is_abbreviation(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the matched `.` belongs to an abbreviation and does not end the sentence that begins at `start`."""
    position, next_position = match.start(), match.end()
    before = text[max(start, position - _REACH) : position]
    word = before.rpartition(" ")[2]
    if len(word) > 1 and word.isalpha() and word.lower() not in _ABBREVIATIONS:  # the most common case
        return False
    words = before.split()
    word = words[-1].lstrip(_BEFORE_A_WORD) if words else ""
    if (last := word[word.rfind("-") + 1 :].lower()) in _RARELY_AN_END:  # `Sept.-Oct. 1973`
        word = last
    if len(word) == 1 and word.islower():  # `Arver v. United States`, `c. 1850`, but an end after `112 m.`
        return word == "v" or (word in _NUMBERED_LETTERS and _NUMBER.match(text, next_position) is not None)
    lowered = word.lower()
    if lowered in _NEVER_AN_END:
        return True
    if lowered in _NO_END_BEFORE_A_NUMBER:
        return _NUMBER.match(text, next_position) is not None
    if lowered in _RARELY_AN_END or (len(word) == 1 and word.isupper()) or _LETTERS_WITH_DOTS.fullmatch(word):
        next_word = _NEXT_WORD.match(text, next_position)
        return next_word is None or next_word[0].lower() not in _FIRST_WORDS
    # The number of a list item: `1. The first of them`
    return word.isdigit() and len(words) == 1 and position - start <= len("100")
