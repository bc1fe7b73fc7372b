"""Windows leave nothing out, and their answers are put together by the text they show."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from bertmill.tasks.windows import (
    PIECES_AT_ONCE,
    Window,
    WindowMaker,
    in_portions,
    merge_windows,
    pack,
    plan_sequence,
)
from hypothesis import given
from hypothesis import strategies as st

from bertmill.errors import UsageError
from bertmill.text.tokenizer import BertTokenizer

LENGTHS = st.lists(st.integers(0, 400), min_size=1, max_size=2).map(tuple)


@given(LENGTHS, st.integers(2, 60), st.none() | st.integers(1, 80))
def test_windows_fit_and_cover_every_piece(lengths: tuple[int, ...], room: int, stride: int | None) -> None:
    plan = plan_sequence(lengths, room, stride)
    for ranges in plan:
        assert sum(end - start for start, end in ranges) <= room
    for text, length in enumerate(lengths):
        seen = {piece for ranges in plan for piece in range(*ranges[text])}
        assert seen == set(range(length))


def test_a_text_that_fits_is_one_window() -> None:
    assert plan_sequence((3, 4), 7, None) == [((0, 3), (0, 4))]


def test_the_stride_is_what_a_window_advances() -> None:
    assert plan_sequence((10,), 4, 3) == [((0, 4),), ((3, 7),), ((6, 10),)]


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    return BertTokenizer.from_pretrained("minilm")


def test_a_window_is_what_the_tokenizer_makes_of_the_texts(tokenizer: BertTokenizer) -> None:
    ((window,),) = WindowMaker(tokenizer, 64)([("A film.", "Not a good one.")])
    encoded = tokenizer("A film.", "Not a good one.")
    assert window.ids.tolist() == encoded["input_ids"]
    assert window.num_first == encoded["token_type_ids"].index(1)
    assert window.weight == len(window.ids) - 3


@pytest.mark.parametrize(("truncate", "fate"), [(True, "cut there"), (False, "read in windows")])
def test_examples_that_do_not_fit_are_counted_once_however_many_choices_they_have(
    truncate: bool, fate: str, tokenizer: BertTokenizer
) -> None:
    make_windows = WindowMaker(tokenizer, 8, truncate=truncate)
    make_windows([("one two",), ("three",)])
    assert make_windows.remark is None
    for _ in range(2):
        windows = make_windows([("word " * 30,), ("word " * 40,)])
        assert (max(map(len, windows)) == 1) == truncate
    assert make_windows.remark == f"2 rows are longer than 8 pieces: {fate}"


@given(st.lists(st.integers(1, 9000), min_size=1, max_size=30))
def test_portions_are_all_windows_in_order_and_bounded(lengths: list[int]) -> None:
    windows = [Window(np.zeros(length, np.uint32), 1, 1) for length in lengths]
    portions = list(in_portions(windows))
    assert [window for portion in portions for window in portion] == windows
    for portion in portions:
        assert len(portion) == 1 or sum(len(window.ids) for window in portion) <= PIECES_AT_ONCE


def test_a_window_without_room_is_refused(tokenizer: BertTokenizer) -> None:
    with pytest.raises(UsageError, match="leaves no room"):
        WindowMaker(tokenizer, 4)


def test_packing_keeps_segments() -> None:
    windows = [Window(np.array([1, 2, 3], np.uint32), 2, 1), Window(np.array([4, 5], np.uint32), 2, 1)]
    batch = pack(windows)
    assert batch.piece_ids is not None
    assert batch.piece_ids.tolist() == [1, 2, 3, 4, 5]
    assert batch.segments is not None
    assert batch.segments.tolist() == [0, 0, 1, 0, 0]
    assert list(batch.lengths) == [3, 2]


def test_merging_is_the_mean_by_pieces_of_text() -> None:
    ids = np.zeros(3, np.uint32)
    sequences = [[Window(ids, 3, 3), Window(ids, 3, 1)], [Window(ids, 3, 5)]]
    merged = merge_windows(torch.tensor([[4.0, 0.0], [0.0, 8.0], [7.0, 7.0]]), sequences)
    assert merged.tolist() == [[3.0, 2.0], [7.0, 7.0]]
