"""Masking: how many pieces are selected, which ones, and what replaces them, as a function of the instance."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.corpus.instances import Layout
from bertmill.corpus.masking import NOT_SELECTED, Masker, MaskingSettings
from bertmill.errors import UsageError
from bertmill.model.packing import IGNORED_LABEL
from tests.corpus.factory import SPECIAL_IDS

PAPER_MIXES = [(0.8, 0.1, 0.1), (1, 0, 0), (0.8, 0, 0.2), (0.8, 0.2, 0), (0, 0.2, 0.8), (0, 0, 1)]  # mask, same, random
SEP, CLS = SPECIAL_IDS.sep, SPECIAL_IDS.cls

Masked = tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", ...]


def masked(
    masker: Masker, sizes: Sequence[int], *, epoch: int = 0, first: int = 0, word_size: int | None = None
) -> Masked:
    """Return original ids, masked ids and labels of instances with `sizes` ordinary pieces."""
    random = np.random.default_rng(sum(sizes))
    ids = np.concatenate([[CLS, *random.integers(5, SPECIAL_IDS.size, size), SEP] for size in sizes])
    begins_word = None
    if word_size:
        begins_word = np.concatenate([[False, *(np.arange(size) % word_size == 0), False] for size in sizes])
    seen = ids.copy()
    lengths, numbers = np.array(sizes) + 2, first + np.arange(len(sizes))
    labels = masker.mask(
        Layout(seen, np.zeros_like(seen), lengths, (ids != CLS) & (ids != SEP), begins_word), epoch, numbers
    )
    return ids, seen, labels


def test_losses_ignore_positions_that_are_not_selected() -> None:
    assert NOT_SELECTED == IGNORED_LABEL


@given(
    sizes=st.lists(st.integers(1, 62), min_size=1, max_size=20),
    rate=st.sampled_from([0.05, 0.15, 0.4, 1.0]),
    word_size=st.sampled_from([None, 1, 3, 70]),
)
def test_labels_are_the_original_pieces_and_never_special(sizes: list[int], rate: float, word_size: int | None) -> None:
    masker = Masker(MaskingSettings(rate, whole_words=word_size is not None), SPECIAL_IDS, 64, 1)
    ids, seen, labels = masked(masker, sizes, word_size=word_size)
    is_selected = labels != NOT_SELECTED
    assert np.array_equal(labels[is_selected], ids[is_selected])
    assert np.array_equal(seen[~is_selected], ids[~is_selected])
    assert not (is_selected & ((ids == CLS) | (ids == SEP))).any()
    for size, part in zip(sizes, np.split(is_selected, np.cumsum(np.array(sizes) + 2)[:-1]), strict=True):
        assert part.sum() >= 1
        if word_size is None:
            assert max(1, np.floor(rate * size)) <= part.sum() <= np.ceil(rate * size)


@pytest.mark.parametrize(("size", "length"), [(62, 64), (125, 128), (509, 512)])
def test_the_rate_is_right_on_average(size: int, length: int) -> None:
    labels = masked(Masker(MaskingSettings(), SPECIAL_IDS, length, 1), [size] * 4000)[2]
    share = (labels != NOT_SELECTED).sum() / (4000 * size)
    assert abs(share - 0.15) < 0.0005


@pytest.mark.parametrize("length", [128, 512, 100])
@pytest.mark.parametrize("word_size", [1, 2, 5])
def test_whole_words_are_selected_completely_at_the_same_rate_and_within_the_limit(length: int, word_size: int) -> None:
    masker = Masker(MaskingSettings(whole_words=True), SPECIAL_IDS, length, 1)
    assert masker.limit == {128: 20, 512: 80, 100: 16}[length]
    size = (length - 2) // word_size * word_size
    labels = masked(masker, [size] * 2000, word_size=word_size)[2].reshape(2000, size + 2)[:, 1:-1] != NOT_SELECTED
    of_words = labels.reshape(2000, -1, word_size)
    assert np.array_equal(of_words.any(2), of_words.all(2))
    assert abs(labels.mean() - 0.15) < 0.002
    assert labels.sum(1).max() <= masker.limit
    by_word = of_words.any(2).mean(0)  # every word is equally likely
    assert abs(by_word - 0.15).max() < 0.05


@pytest.mark.parametrize("mix", PAPER_MIXES, ids=str)
def test_replacements_follow_the_mixes_of_the_paper(mix: tuple[float, float, float]) -> None:
    mask, same, random = mix
    masker = Masker(MaskingSettings(mask=mask, same=same, random=random), SPECIAL_IDS, 128, 1)
    ids, seen, labels = masked(masker, [120] * 5000)
    was, now = ids[labels != NOT_SELECTED], seen[labels != NOT_SELECTED]
    is_mask, is_same = now == SPECIAL_IDS.mask, now == was
    assert abs(is_mask.mean() - mask) < 0.005
    assert abs(is_same.mean() - same) < 0.005  # a random piece is the same one time in a thousand
    others = now[~is_mask & ~is_same]
    assert abs(len(others) / len(now) - random) < 0.005
    if random:
        assert others.min() == 5  # every ordinary piece, and no special one
        assert others.max() == SPECIAL_IDS.size - 1
        tenths = np.bincount((others - 5) * 10 // (SPECIAL_IDS.size - 5)) / len(others)
        assert abs(tenths - 0.1).max() < 0.02


def test_every_piece_is_equally_likely_to_be_selected() -> None:
    labels = masked(Masker(MaskingSettings(), SPECIAL_IDS, 64, 1), [60] * 20_000)[2].reshape(20_000, 62)
    share = (labels[:, 1:-1] != NOT_SELECTED).mean(0)
    assert abs(share - 0.15).max() < 0.012


@pytest.mark.parametrize("word_size", [None, 3])
def test_an_instance_is_masked_identically_in_any_batch(word_size: int | None) -> None:
    masker = Masker(MaskingSettings(whole_words=word_size is not None), SPECIAL_IDS, 64, 1)
    sizes = [30] * 10
    whole = masked(masker, sizes, first=100, word_size=word_size)[2] != NOT_SELECTED
    alone = [masked(masker, [30], first=100 + number, word_size=word_size)[2] != NOT_SELECTED for number in range(10)]
    assert np.array_equal(whole, np.concatenate(alone))
    other_epoch = masked(masker, sizes, epoch=1, first=100, word_size=word_size)[2] != NOT_SELECTED
    assert not np.array_equal(whole, other_epoch)
    other_seed = Masker(masker.settings, SPECIAL_IDS, 64, 2)
    assert not np.array_equal(whole, masked(other_seed, sizes, first=100, word_size=word_size)[2] != NOT_SELECTED)


def test_neighbors_do_not_share_random_numbers() -> None:
    """Nor are they shifted by some positions, as they would be if counters overlapped."""
    labels = masked(Masker(MaskingSettings(), SPECIAL_IDS, 64, 1), [60] * 3000)[2].reshape(3000, 62)[:, 1:-1]
    is_selected = labels != NOT_SELECTED
    for shift in range(9):
        both = (is_selected[:-1, shift:] & is_selected[1:, : 60 - shift]).mean()
        assert abs(both - 0.15**2) < 0.003


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rate": 0.0}, "above 0 and at most 1"),
        ({"rate": 1.5}, "above 0 and at most 1"),
        ({"mask": 0.9}, "add up to 1, not 0.9, 0.1 and 0.1"),
        ({"mask": 1.2, "random": -0.2, "same": 0}, "add up to 1, not 1.2, -0.2 and 0"),
    ],
)
def test_invalid_settings_are_rejected(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MaskingSettings(**wrong)  # type: ignore[arg-type]
