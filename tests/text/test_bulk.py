"""Any number of workers gives the same pieces in the same order."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from bertmill.text import bulk
from bertmill.text.bulk import encode_texts
from bertmill.text.tokenizer import BertTokenizer

WORDPIECE = BertTokenizer.from_pretrained("minilm").wordpiece
EDGE_CASES = ["", " ", "[MASK] é\u0301", "北京", "\ud800"]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_pieces_do_not_depend_on_the_number_of_workers(
    read_lines: Callable[[str, int], list[str]], workers: int
) -> None:
    lines = EDGE_CASES + read_lines("text/enwiki-heldout.txt.xz", 1_000_000) + EDGE_CASES
    ids = list(encode_texts(WORDPIECE, lines, workers=workers))
    assert len(ids) == len(lines)
    for line, row in zip(lines, ids, strict=True):
        assert np.array_equal(row, WORDPIECE.pieces(line, split_special=True).ids)


def test_texts_are_read_lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "CHUNK_CHARACTERS", 100)
    num_read = 0

    def endless() -> Iterator[str]:
        nonlocal num_read
        while True:
            num_read += 1
            yield "some words of text"

    rows = encode_texts(WORDPIECE, endless(), workers=2)
    assert [len(next(rows)) for _ in range(10)] == [4] * 10
    assert num_read < 100
    rows.close()  # type: ignore[attr-defined]  # stops the workers


def test_no_texts_give_no_results() -> None:
    assert list(encode_texts(WORDPIECE, [], workers=2)) == []
