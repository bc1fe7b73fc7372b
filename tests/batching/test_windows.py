"""Windows cover every piece, and their outputs are averaged by the number of text pieces."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertmill.batching.windows import (
    Window,
    Windows,
    make_windows,
    merge_windows,
    pack,
    plan_sequence,
    recorded_settings,
    widest_context,
)
from bertmill.config.commands import WindowSettings
from bertmill.errors import IntegrityError, UsageError
from bertmill.text.tokenizer import BertTokenizer

LENGTHS = st.lists(st.integers(0, 400), min_size=1, max_size=2).map(tuple)


@given(LENGTHS, st.integers(2, 60), st.integers(0, 80))
def test_windows_fit_and_cover_every_piece(lengths: tuple[int, ...], room: int, stride: int) -> None:
    plan = plan_sequence(lengths, room, stride)
    for ranges in plan:
        assert sum(end - start for start, end in ranges) <= room
    for text, length in enumerate(lengths):
        seen = {piece for ranges in plan for piece in range(*ranges[text])}
        assert seen == set(range(length))


def test_a_text_that_fits_is_one_window() -> None:
    assert plan_sequence((3, 4), 7, 0) == [((0, 3), (0, 4))]


def test_the_stride_is_what_a_window_advances() -> None:
    assert plan_sequence((10,), 4, 3) == [((0, 4),), ((3, 7),), ((6, 10),)]


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    return BertTokenizer.from_pretrained("minilm")


def test_a_window_matches_the_tokenizer_output(tokenizer: BertTokenizer) -> None:
    ((window,),) = Windows(tokenizer, 64).cut([("A film.", "Not a good one.")])
    encoded = tokenizer("A film.", "Not a good one.")
    assert window.ids.tolist() == encoded["input_ids"]
    assert window.num_first == encoded["token_type_ids"].index(1)
    assert window.weight == len(window.ids) - 3


@pytest.mark.parametrize(("truncate", "outcome"), [(True, "truncated"), (False, "read in windows")])
def test_an_example_that_does_not_fit_is_counted_once_for_any_number_of_choices(
    truncate: bool, outcome: str, tokenizer: BertTokenizer
) -> None:
    windows = Windows(tokenizer, 8, truncate=truncate)
    windows.cut([("one two",), ("three",)])
    assert windows.remark is None
    for _ in range(2):
        sequences = windows.cut([("word " * 30,), ("word " * 40,)])
        assert (max(map(len, sequences)) == 1) == truncate
    assert windows.remark == f"rows longer than 8 pieces ({outcome}): 2"


def test_threads_get_the_same_windows_and_counts_are_exact(tokenizer: BertTokenizer) -> None:
    texts = [f"word {number} " * (number % 12 + 1) for number in range(100)]
    alone = Windows(tokenizer, 16)
    expected = [[window.ids.tolist() for window in alone.cut([(text,)])[0]] for text in texts]
    num_long = sum(len(windows) > 1 for windows in expected)
    num_threads = 8
    shared = Windows(tokenizer, 16)
    barrier = threading.Barrier(num_threads)

    def encode(_: int) -> list[list[list[int]]]:
        barrier.wait()
        found = []
        for text in texts:
            (windows,) = shared.cut([(text,)])
            assert shared.pieces(text).ids.tolist() == tokenizer.wordpiece.pieces(text, split_special=True).ids.tolist()
            found.append([window.ids.tolist() for window in windows])
            shared.count("counted texts")
        return found

    with ThreadPoolExecutor(num_threads) as pool:
        assert list(pool.map(encode, range(num_threads))) == [expected] * num_threads
    assert shared.remark is not None
    assert set(shared.remark.split("; ")) == {
        f"rows longer than 16 pieces (read in windows): {num_threads * num_long:,}",
        f"counted texts: {num_threads * len(texts):,}",
    }


def test_a_window_without_room_for_two_texts_is_rejected(tokenizer: BertTokenizer) -> None:
    with pytest.raises(UsageError, match="has no room for two texts; use at least 5"):
        make_windows(WindowSettings(), tokenizer, 4)


def test_settings_that_do_not_fit_the_model_are_rejected(tokenizer: BertTokenizer) -> None:
    with pytest.raises(UsageError, match="`max_length=600` exceeds the 512 positions of the model"):
        make_windows(WindowSettings(max_length=600), tokenizer, 512)
    with pytest.raises(UsageError, match=r"the stride 33 must not exceed the window \(32\)"):
        make_windows(WindowSettings(max_length=32, stride=33), tokenizer, 512)


def test_windows_with_a_stride_of_their_length_leave_no_gap(tokenizer: BertTokenizer) -> None:
    windows = make_windows(WindowSettings(max_length=32, stride=32), tokenizer, 512)
    assert windows.slide(70, room=30) == [(0, 30), (30, 60), (60, 70)]


def test_settings_and_the_positions_of_the_model_override_defaults(tokenizer: BertTokenizer) -> None:
    def found(**settings: int) -> tuple[int, int | None]:
        windows = make_windows(WindowSettings(**settings), tokenizer, 256, 384, 128)
        return windows.max_length, windows.stride

    assert found() == (256, 85)  # a third of the window, so that windows overlap
    assert found(max_length=48) == (48, 16)
    assert found(max_length=48, stride=40) == (48, 40)
    assert make_windows(WindowSettings(), tokenizer, 256).metadata() == {
        "max_length": 256,
        "stride": None,
        "truncate": False,
    }


def test_a_model_folder_completes_settings(tmp_path: Path) -> None:
    recorded = {"max_length": 16, "stride": 7, "truncate": True}
    (tmp_path / "bertmill.json").write_text(json.dumps({"windows": recorded}), encoding="utf-8")

    def completed(**settings: int | bool) -> tuple[int | None, int | None, bool | None]:
        windows = recorded_settings(WindowSettings(**settings), tmp_path)
        return windows.max_length, windows.stride, windows.truncate

    assert completed() == completed(max_length=16) == (16, 7, True)
    assert completed(max_length=32) == (32, None, True)  # the stride belongs to another length
    assert completed(max_length=32, stride=4, truncate=False) == (32, 4, False)
    (tmp_path / "bertmill.json").write_text('{"windows": {"max_length": "many"}}', encoding="utf-8")
    with pytest.raises(IntegrityError, match=r"bertmill.json: has no valid window settings"):
        completed()


@given(st.integers(0, 2000), st.integers(1, 510), st.integers(1, 600))
def test_every_piece_has_its_widest_context_in_a_window_that_contains_it(
    num_pieces: int, room: int, stride: int
) -> None:
    ranges = [part for (part,) in plan_sequence((num_pieces,), room, stride)]
    starts, ends = np.array(ranges).T
    for piece, number in enumerate(widest_context(ranges, num_pieces).tolist()):
        contexts = np.minimum(piece - starts, ends - 1 - piece)
        assert contexts[number] == contexts.max() >= 0


def test_tasks_that_need_every_piece_reject_truncation(tokenizer: BertTokenizer) -> None:
    with pytest.raises(UsageError, match="this task reads every piece"):
        Windows(tokenizer, 32, truncate=True).slide(5, 30)


def test_packing_keeps_segments() -> None:
    windows = [Window(np.array([1, 2, 3], np.uint32), 2, 1), Window(np.array([4, 5], np.uint32), 2, 1)]
    batch = pack(windows)
    assert batch.piece_ids is not None
    assert batch.piece_ids.tolist() == [1, 2, 3, 4, 5]
    assert batch.segments is not None
    assert batch.segments.tolist() == [0, 0, 1, 0, 0]
    assert list(batch.lengths) == [3, 2]


def test_merged_windows_are_averaged_by_text_pieces() -> None:
    ids = np.zeros(3, np.uint32)
    sequences = [[Window(ids, 3, 3), Window(ids, 3, 1)], [Window(ids, 3, 5)]]
    merged = merge_windows(torch.tensor([[4.0, 0.0], [0.0, 8.0], [7.0, 7.0]]), sequences)
    assert merged.tolist() == [[3.0, 2.0], [7.0, 7.0]]
