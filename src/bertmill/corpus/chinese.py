"""Chinese words: find the ideographs that continue a word, with jieba's dictionary.

WordPiece makes every ideograph a separate word. jieba segments the same text into words, and a piece that begins with
an ideograph inside such a word does not begin a word. Pieces of other characters, and everything in text that jieba
does not segment, are unchanged.
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
    """Return, for each character of `text`, whether it is an ideograph that continues a word."""
    continues = np.zeros(len(text), np.bool_)
    continues[[match.start() for match in _IDEOGRAPH.finditer(text)]] = True
    if continues.any():
        continues[list(accumulate(map(len, _jieba().cut(text)), initial=0))[:-1]] = False
    return continues


def version() -> str:
    """Return the version of the dictionary. A different version gives a different corpus."""
    return str(_module().__version__)


@cache
def _jieba() -> Any:
    """Return jieba's tokenizer, without the cache file that it would leave in the temporary directory."""
    cutter = _module().Tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        cutter.tmp_dir = folder
        cutter.initialize()
    return cutter


def _module() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # jieba was released in 2020 and causes warnings in current Python
            import jieba
    except ModuleNotFoundError:
        what = "chinese_words needs the package jieba, which is not installed"
        raise UsageError(what, remedy="pip install jieba") from None
    jieba.setLogLevel(logging.WARNING)
    return jieba
