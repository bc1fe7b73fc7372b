"""Numbers are read from a file as numpy would, and a file that becomes shorter is an error."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.corpus.number_file import NumberFile
from bertmill.errors import IntegrityError

RECORD = np.dtype([("start", "<u8"), ("label", "u1")])


def opened(path: Path, kind: np.dtype) -> NumberFile:
    return NumberFile(path, kind, remedy="write it again")


@given(
    numbers=st.lists(st.integers(0, 65535), max_size=30),
    part=st.slices(30).filter(lambda part: part.step in (None, 1)),
    data=st.data(),
)
def test_slices_and_selections_match_numpy(
    numbers: list[int], part: slice, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "numbers"
    for array in (np.array(numbers, "<u2"), np.array([(number, number % 256) for number in numbers], RECORD)):
        path.write_bytes(array.tobytes())
        file = opened(path, array.dtype)
        assert len(file) == len(array)
        assert file[part].tolist() == array[part].tolist()
        indices = np.array(data.draw(st.lists(st.integers(0, len(numbers) - 1)) if numbers else st.just([])), np.int64)
        assert file.take(indices).tolist() == array[indices].tolist()
        assert file.take(indices).dtype == array.dtype


def test_a_file_that_was_truncated_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(np.arange(1000, dtype="<u4").tobytes())
    file = opened(path, np.dtype("<u4"))
    with path.open("r+b") as other:
        other.truncate(1998)
    assert file[:499].tolist() == list(range(499))
    for read in (lambda: file[490:510], lambda: file[:], lambda: file.take(np.array([3, 700]))):
        with pytest.raises(IntegrityError, match="numbers: was truncated while it was in use; write it again"):
            read()
    with pytest.raises(IntegrityError, match="numbers: is truncated; write it again"):
        opened(path, np.dtype("<u4"))
    with pytest.raises(IntegrityError, match="nothing: cannot be read: No such file or directory; write it again"):
        opened(tmp_path / "nothing", np.dtype("<u4"))


def test_files_are_closed_when_they_are_no_longer_used(tmp_path: Path) -> None:
    (tmp_path / "numbers").write_bytes(bytes(8))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        opened(tmp_path / "numbers", np.dtype("<u4"))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
