"""Settings in messages: Python arguments, which the command line shows as flags that can be copied."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.config.notation import setting, with_flags


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (f"set {setting('columns')}", "set --columns"),
        (f"set {setting('columns', 'text=a,label=b')}", "set --columns text=a,label=b"),
        (f"set {setting('columns', 'text=my text')} now", "set --columns 'text=my text' now"),
        (f"set {setting('on_bad_row', 'skip')}", "set --on-bad-row skip"),
        (f"set {setting('multi_label', True)}", "set --multi-label"),
        (f"set {setting('truncate', False)}", "set --no-truncate"),
        (f"set {setting('separator', chr(9))}", "set --separator tab"),
        (f"{setting('max_length', 600)} exceeds", "--max-length 600 exceeds"),
        ("fine-tune it with `bertmill finetune`", "fine-tune it with `bertmill finetune`"),
        ("the label '`' is not `A` or `1`", "the label '`' is not `A` or `1`"),
    ],
)
def test_settings_become_flags(message: str, expected: str) -> None:
    assert with_flags(message) == expected
    assert with_flags(expected) == expected


@given(
    st.text(st.characters(exclude_characters="\t"))
    | st.sampled_from(["'", '"', "\\", "`", "a`b`", "$(x)", 'it\'s "x"'])
)
def test_any_value_can_be_copied_into_a_shell(value: str) -> None:
    assert shlex.split(with_flags(f"set {setting('columns', value)}, please")[: -len(", please")]) == [
        "set",
        "--columns",
        value,
    ]
