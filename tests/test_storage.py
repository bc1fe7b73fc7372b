"""Files and folders appear whole or not at all."""

import contextlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.errors import IntegrityError, ResourceError, UsageError
from bertmill.storage import (
    locked_folder,
    manifest_entry,
    new_folder,
    read_json,
    read_manifest,
    resumable_folder,
    safe_join,
    verify_manifest,
    write_file,
    write_manifest,
)


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_file(tmp_path / "a.txt", "old")
    write_file(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_what_cannot_be_a_file_is_told_by_its_own_name(tmp_path: Path) -> None:
    for path, message in (
        (Path(), ".: cannot be written: it is a folder"),
        (Path("/"), "/: cannot be written: it is a folder"),
        (tmp_path, "cannot be written: it is a folder"),
        (tmp_path / "none" / "a.txt", f"a.txt: cannot be written: the folder {tmp_path / 'none'} does not exist"),
    ):
        with pytest.raises(UsageError) as caught:
            write_file(path, "text")
        assert message in str(caught.value)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "a.txt", "old")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ResourceError, match="No space left"):
        write_file(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_file_over_the_size_limit_of_the_system_is_a_resource_error(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys, pathlib\n"
        "from bertmill.storage import write_file\n"
        "from bertmill.errors import ResourceError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n    write_file(pathlib.Path(sys.argv[1]), b'x' * 5000)\n"
        "except ResourceError:\n    sys.exit(6)\n"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1000
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")]).returncode == 6
    assert list(tmp_path.iterdir()) == []


def test_a_folder_appears_with_its_manifest(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out") as folder:
        (folder / "inner").mkdir()
        (folder / "inner/a.bin").write_bytes(b"abc")
        assert not (tmp_path / "out").exists()
    verify_manifest(tmp_path / "out")
    assert (tmp_path / "out/inner/a.bin").read_bytes() == b"abc"


def test_a_folder_that_fails_half_way_never_appears(tmp_path: Path) -> None:
    def fail_half_way() -> None:
        with new_folder(tmp_path / "out") as folder:
            (folder / "a").write_text("a")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="already exists"), new_folder(tmp_path / "out"):
        pass


def test_the_manifest_notices_what_is_missing_cut_or_flipped(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"12345")
    write_manifest(tmp_path)
    verify_manifest(tmp_path)
    (tmp_path / "a").unlink()
    (tmp_path / "b").write_bytes(b"123")
    (tmp_path / "c").write_bytes(b"12344")
    with pytest.raises(IntegrityError) as caught:
        verify_manifest(tmp_path)
    for problem in ("a is missing", "b has 3 bytes, not 5", "c has changed since it was written"):
        assert problem in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", '{"files": 3}', '{"files": {"a": {}}}', "[" * 100_000])
def test_a_broken_manifest_is_an_integrity_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(IntegrityError):
        verify_manifest(tmp_path)


def test_a_manifest_has_a_format_number(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    write_manifest(tmp_path)
    assert read_json(tmp_path / "manifest.json")["format"] == 1


def test_a_manifest_of_the_earlier_format_has_no_number_and_still_opens(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {"a": manifest_entry(tmp_path / "a")}}))
    verify_manifest(tmp_path)
    write_manifest(tmp_path, ["a"])
    assert read_json(tmp_path / "manifest.json")["format"] == 1


@pytest.mark.parametrize("number", [2, 0, "1", None])
def test_a_manifest_of_an_unsupported_format_is_refused_in_one_line(tmp_path: Path, number: object) -> None:
    write_manifest(tmp_path)
    content = {**read_json(tmp_path / "manifest.json"), "format": number}
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    remedy = "upgrade bertmill" if number == 2 else "restore the file"
    message = rf"manifest\.json: has format {number!r}, but this version of bertmill supports format 1; {remedy}"
    for open_folder in (verify_manifest, read_manifest, lambda folder: write_manifest(folder, [])):
        with pytest.raises(IntegrityError, match=message):
            open_folder(tmp_path)


def test_written_files_have_the_mode_of_the_umask(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "a").chmod(0o600)
    write_manifest(tmp_path)
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~umask


def test_an_error_of_the_caller_stays_what_it_is(tmp_path: Path) -> None:
    def read_what_is_not_there() -> None:
        with new_folder(tmp_path / "out"):
            Path("absent").read_text()

    with pytest.raises(FileNotFoundError, match="absent"):
        read_what_is_not_there()


def test_a_folder_that_is_missing_or_a_file_in_the_way_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "absent/a", tmp_path / "file/a", tmp_path / ("a" * 300)):
        with pytest.raises(UsageError, match="cannot be written"):
            write_file(path, "x")


def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="it is not a regular file"):
        write_file(tmp_path / "pipe", "x")
    assert (tmp_path / "pipe").is_fifo()


def test_a_manifest_can_be_renewed_for_some_files_alone(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("a", "b", "inner/manifest.json"):
        (tmp_path / name).write_text("old")
    write_manifest(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).write_text("new")
    write_manifest(tmp_path, ["a"])
    with pytest.raises(IntegrityError) as caught:
        verify_manifest(tmp_path)
    assert "b has changed since it was written" in str(caught.value)
    assert "a has" not in str(caught.value).replace(str(tmp_path), "")
    (tmp_path / "inner/manifest.json").unlink()
    with pytest.raises(IntegrityError, match=r"inner/manifest\.json is missing"):
        verify_manifest(tmp_path)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "link/x", "a\0b", "a" * 300, "loop/x"])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to("/tmp")
    (root / "loop").symlink_to("loop")
    with pytest.raises(IntegrityError):
        safe_join(root, name)


@given(st.text())
def test_a_joined_path_is_inside_or_refused(name: str) -> None:
    root = Path("/some/root")
    with contextlib.suppress(IntegrityError, UnicodeEncodeError):
        assert safe_join(root, name).is_relative_to(root)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"{", "not JSON"), (b"[]", "not a JSON object"), (b"[" * 200_000, "nested"), (b" " * 2000, "2,000 bytes")],
)
def test_json_that_cannot_be_meant_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(IntegrityError, match=problem):
        read_json(tmp_path / "a.json", max_bytes=1000 if problem.startswith("2") else 1_000_000)


def test_facts_stand_beside_the_list_of_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    write_manifest(tmp_path, facts={"corpus": {"pieces": 3}})
    assert read_json(tmp_path / "manifest.json")["corpus"] == {"pieces": 3}
    verify_manifest(tmp_path)
    write_manifest(tmp_path, ["a"])
    assert read_json(tmp_path / "manifest.json")["corpus"] == {"pieces": 3}


def test_work_that_was_broken_off_is_found_again_and_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder"

    def break_off() -> None:
        with resumable_folder(path) as (whole, notes):
            (whole / "a").write_text("half")
            (notes / "a is done").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert not path.exists()
    with pytest.raises(IntegrityError, match=r"manifest\.json: is missing"), resumable_folder(path):
        pass  # a folder without a manifest is not whole
    with resumable_folder(path) as (whole, notes):
        assert (whole / "a").read_text() == "half"
        assert (notes / "a is done").exists()
        write_manifest(whole)
    assert sorted(entry.name for entry in path.iterdir()) == ["a", "manifest.json"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]
    with pytest.raises(UsageError, match="already exists"), resumable_folder(path):
        pass


def test_a_folder_that_an_error_leaves_empty_goes_again_if_it_was_made_for_the_work(tmp_path: Path) -> None:
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


def test_what_a_kill_left_half_written_goes_when_the_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "checkpoints/.tmp-step-000010").mkdir(parents=True)
    (tmp_path / "checkpoints/.tmp-step-000010/weights").touch()
    (tmp_path / ".tmp-model-0123abcd").touch()
    (tmp_path / ".tmp-mine").touch()  # not one of ours
    (tmp_path / "log").touch()
    with locked_folder(tmp_path):
        assert sorted(path.name for path in tmp_path.rglob("*")) == [".tmp-mine", "checkpoints", "log"]


def test_an_error_of_the_work_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), resumable_folder(tmp_path / "folder"):
        (tmp_path / "absent").read_bytes()
    assert not list(tmp_path.iterdir())  # there were no notes
    with pytest.raises(ResourceError, match="cannot be written"), resumable_folder(tmp_path / "folder"):
        raise OSError(28, "No space left on device")
