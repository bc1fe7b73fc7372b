"""The public names of the package are documented."""

import re
from pathlib import Path

import bertmill

ROOT = Path(__file__).parent.parent.parent


def test_public_names_are_the_documented_names() -> None:
    page = (ROOT / "docs/python.md").read_text()
    documented = set(re.findall(r"^## `(\w+)`", page, re.MULTILINE))
    assert documented == set(bertmill.__all__) - {"__version__"}


def test_every_public_name_can_be_imported() -> None:
    for name in bertmill.__all__:
        assert getattr(bertmill, name) is not None
    assert dir(bertmill) == sorted(bertmill.__all__)
