"""bertmill makes BERT models out of text and gets answers out of them.

The public names, imported when first used: `import bertmill` alone loads nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bertmill.version import __version__

if TYPE_CHECKING:
    from bertmill.text.tokenizer import BertTokenizer

_HOMES = {
    "BertTokenizer": "bertmill.text.tokenizer",
}

__all__ = ["BertTokenizer", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertmill' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
