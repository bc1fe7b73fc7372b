"""Chinese words: which ideographs go on a word that an earlier one began, by jieba's dictionary.

WordPiece makes every ideograph a word of its own. jieba cuts the same text into words; a piece that begins with an
ideograph inside one of them does not begin a word any more. Pieces of other characters stay as they are, and so does
everything in text that jieba does not cut.
"""

from __future__ import annotations

import logging
import re
import tempfile
import warnings
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from bertmill.errors import UsageError
from bertmill.text.characters import IDEOGRAPH_CLASS

if TYPE_CHECKING:
    from numpy.typing import NDArray

_IDEOGRAPH = re.compile(f"[{IDEOGRAPH_CLASS}]")


def goes_on_word(text: str) -> NDArray[np.bool_]:
    """For each character of `text`: is it an ideograph in a word that began before it?"""
    goes_on = np.zeros(len(text), np.bool_)
    goes_on[[match.start() for match in _IDEOGRAPH.finditer(text)]] = True
    if goes_on.any():
        goes_on[list(accumulate(map(len, _jieba().cut(text)), initial=0))[:-1]] = False
    return goes_on


def version() -> str:
    """Of the dictionary: a corpus made with another one is another corpus."""
    return str(_module().__version__)


@cache
def _jieba() -> Any:
    """jieba's own cutter, quiet, and without the cache file that it would leave in the folder of temporary files."""
    cutter = _module().Tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        cutter.tmp_dir = folder
        cutter.initialize()
    return cutter


def _module() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a package of 2020 about the Python of today
            import jieba
    except ModuleNotFoundError:
        what = "--chinese-words needs the package jieba, which is not installed"
        raise UsageError(what, remedy="pip install jieba") from None
    jieba.setLogLevel(logging.WARNING)
    return jieba
