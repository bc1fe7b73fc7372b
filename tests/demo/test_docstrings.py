"""Tests for parsing docstrings: sections and items in both styles, without code, tables and markup."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bertmill.demo.docstrings import CODE, END, TYPE, Docstring, Item, parse_docstring, plain

NUMPYDOC = """
    Compute shortest paths in the graph.

    The paths are found by `breadth-first` search or by ``Dijkstra``'s algorithm [1]_. See :ref:`the guide <paths>`.

    Parameters
    ----------
    G : NetworkX graph

    source : node, optional
        Starting node for path. If not specified, compute all.

        .. versionadded:: 1.9
    n, m : int
        Numbers of nodes.

    Returns
    -------
    path : list or dictionary
        All returned paths include both ends.

    Raises
    ------
    ValueError
        If the method is unknown.

    Examples
    --------
    >>> shortest_path(G)
    [0, 1]

    Notes
    -----
    There may be more than one shortest path.
"""

GOOGLE = """Applies a linear map to the data.

    This module supports :class:`~torch.Tensor` inputs.

    Args:
        in_features (int): size of each input
            sample
        generator (:class:`torch.Generator`, optional): where random numbers come from

    Returns:
        Tensor: the result

    Shape:
        - Input: any

    Example::

        >>> m = Linear(2)

    A last remark without a title.
"""


def test_numpydoc_is_parsed_into_summary_description_and_items() -> None:
    found = parse_docstring(NUMPYDOC)
    assert found.summary == "Compute shortest paths in the graph."
    (description,) = found.description
    assert (
        plain(description) == "The paths are found by breadth-first search or by Dijkstra's algorithm. See the guide."
    )
    assert f"{CODE}breadth-first{END}" in description
    assert found.parameters == (
        Item("G", "NetworkX graph", ""),
        Item("source", "node", "Starting node for path. If not specified, compute all."),
        Item("n, m", "int", "Numbers of nodes."),
    )
    assert found.returns == (Item("path", "list or dictionary", "All returned paths include both ends."),)
    assert found.others == ("If the method is unknown.", "There may be more than one shortest path.")


def test_google_style_is_parsed_into_summary_description_and_items() -> None:
    found = parse_docstring(GOOGLE)
    assert found.summary == "Applies a linear map to the data."
    assert found.description == (f"This module supports {TYPE}Tensor{END} inputs.",)
    assert found.parameters == (
        Item("in_features", "int", "size of each input sample"),
        Item("generator", "torch.Generator", "where random numbers come from"),
    )
    assert found.returns == (Item("", "Tensor", "the result"),)
    assert found.others == ("A last remark without a title.",)


def test_a_return_value_may_have_only_a_type_or_only_a_description() -> None:
    assert parse_docstring("Returns\n-------\nbool").returns == (Item("", "bool", ""),)
    text = "Add.\n\nReturns:\n    The sum of all numbers\n    in the list."
    assert parse_docstring(text).returns == (Item("", "", "The sum of all numbers in the list."),)


def test_a_literal_block_is_dropped() -> None:
    text = "Do it like this::\n\n    x = compute(y)\n    the words of a comment\n\nThen go on with the rest."
    assert parse_docstring(text).paragraphs == ["Do it like this:", "Then go on with the rest."]


def test_only_the_prose_of_directives_is_kept() -> None:
    note, code = ".. note::\n    Mind the gap here.", ".. code-block:: python\n\n    mind the gap"
    text = f"First of all.\n\n{note}\n\n{code}\n\nThe end of it."
    assert parse_docstring(text).paragraphs == ["First of all.", "Mind the gap here.", "The end of it."]


def test_every_bullet_is_a_paragraph() -> None:
    text = "The options are:\n\n- the first one is short\n* the second one is longer\n  and goes on\n1. the third one"
    assert parse_docstring(text).description == (
        "the first one is short",
        "the second one is longer and goes on",
        "the third one",
    )


def test_text_that_is_not_prose_is_dropped() -> None:
    for text in (
        ">>> compute(1)\n2",
        "split(text, sep=None)",
        "name    value\none     two\nthree   four",
        "The value of :math:`x` is the mean.",
        "x = 1; y = 2; z = x + y * 3",
        "compute(x) -> the result of it",
        "a bell \a rings",
        "",
    ):
        assert parse_docstring(text).paragraphs == [], text


def test_known_paragraphs_can_be_removed() -> None:
    found = parse_docstring(NUMPYDOC).without({"Numbers of nodes.", "Compute shortest paths in the graph."})
    assert found.summary == ""
    assert [item.name for item in found.parameters] == ["G", "source"]
    assert Docstring().without({""}) == Docstring()


MARKUP = st.text(st.sampled_from("ab C:`*-=.,\n    >[]_<~()1|") | st.characters(), max_size=200)


@given(MARKUP)
def test_any_text_gives_clean_paragraphs(text: str) -> None:
    for paragraph in parse_docstring(text).paragraphs:
        shown = plain(paragraph)
        assert shown.isprintable()
        assert "  " not in shown
        assert not {CODE, TYPE, END} & set(shown)
        assert paragraph.count(CODE) + paragraph.count(TYPE) == paragraph.count(END)


@given(st.lists(st.from_regex(r"[A-Z][a-z]{2,8}( [a-z]{2,8}){3,9}\.", fullmatch=True), min_size=1, max_size=5))
def test_plain_paragraphs_are_unchanged(paragraphs: list[str]) -> None:
    assert parse_docstring("\n\n".join(paragraphs)).paragraphs == paragraphs
