"""Text for a terminal has no control characters."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from bertmill.text.printable import escaped, json_line, listed


def test_control_characters_are_escaped_and_other_text_is_kept() -> None:
    assert escaped("a\x1b\x9b\u202e\udcff\n\tb") == "a\\x1b\\x9b\\u202e\\udcff\\n\\tb"
    assert escaped("a\n\tb", keep="\n\t") == "a\n\tb"
    assert escaped("北京\u3000😀 é") == "北京\u3000😀 é"


def test_long_lists_are_cut_off() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed(["a", "b", "c"], 2) == "a, b …"


@given(value=st.text())
def test_a_json_line_has_no_control_characters_and_loses_nothing(value: str) -> None:
    line = json_line({"text": value})
    assert line == escaped(line)
    assert json.loads(line) == {"text": value}
