"""One process at a time writes a folder, and unfinished work is kept for the next one."""

from pathlib import Path

import pytest

from bertmill.errors import IntegrityError, ResourceError, UsageError
from bertmill.locks import locked_folder, resumable_folder
from bertmill.storage import append_to_file, new_folder, write_file, write_manifest


def test_interrupted_work_can_be_resumed_and_appears_complete(tmp_path: Path) -> None:
    path = tmp_path / "folder"

    def fail() -> None:
        with resumable_folder(path) as (whole, records):
            (whole / "a").write_text("half")
            (records / "a is done").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not path.exists()
    with pytest.raises(IntegrityError, match=r"manifest\.json: is missing"), resumable_folder(path):
        pass  # a folder without a manifest is incomplete
    with resumable_folder(path) as (whole, records):
        assert (whole / "a").read_text() == "half"
        assert (records / "a is done").exists()
        write_manifest(whole)
    assert sorted(entry.name for entry in path.iterdir()) == ["a", "manifest.json"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]
    with pytest.raises(UsageError, match="already exists"), resumable_folder(path):
        pass


def test_an_empty_folder_is_removed_after_an_error_if_the_call_created_it(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    for name, left in (("new", None), ("before", None), ("used", "a")):

        def fail(name: str = name, left: str | None = left) -> None:
            with locked_folder(tmp_path / name):
                if left:
                    (tmp_path / name / left).touch()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before", "used"]


def test_locking_a_folder_removes_half_written_files(tmp_path: Path) -> None:
    (tmp_path / "checkpoints/.tmp-step-000010").mkdir(parents=True)
    (tmp_path / "checkpoints/.tmp-step-000010/weights").touch()
    (tmp_path / ".tmp-model-0123abcd").touch()
    (tmp_path / ".tmp-mine").touch()  # not one of ours
    (tmp_path / "log").touch()
    with locked_folder(tmp_path):
        assert sorted(path.name for path in tmp_path.rglob("*")) == [".tmp-mine", "checkpoints", "log"]


def test_resumable_folder_does_not_change_errors_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), resumable_folder(tmp_path / "folder"):
        (tmp_path / "absent").read_bytes()
    assert not list(tmp_path.iterdir())  # there were no records
    with pytest.raises(ResourceError, match="cannot be written"), resumable_folder(tmp_path / "folder"):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("is_replaced", [False, True])
def test_nothing_is_written_to_a_folder_that_was_moved(tmp_path: Path, is_replaced: bool) -> None:
    folder, moved = tmp_path / "run", tmp_path / "moved"

    def make_folder() -> None:
        with new_folder(folder / "checkpoints/step"):
            pass

    with locked_folder(folder):
        write_file(folder / "a", "a")
        folder.rename(moved)
        if is_replaced:
            folder.mkdir()
        for write in (
            lambda: write_file(folder / "a", "b"),
            lambda: append_to_file(folder / "log", "b"),
            make_folder,
        ):
            with pytest.raises(UsageError, match="run: was moved or replaced while this process was writing to it"):
                write()
        write_file(tmp_path / "other", "b")
    assert [path.name for path in moved.iterdir()] == ["a"]
    assert folder.exists() == is_replaced
    assert not is_replaced or not list(folder.iterdir())
    folder.mkdir(exist_ok=True)
    write_file(folder / "a", "after the lock was released")


def test_a_folder_is_only_removed_by_the_process_that_created_it(tmp_path: Path) -> None:
    def fail() -> None:
        with locked_folder(tmp_path / "run"):
            (tmp_path / "run").rename(tmp_path / "moved")
            (tmp_path / "run").mkdir()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (tmp_path / "run").exists()
