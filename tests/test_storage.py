"""Files and folders appear complete or not at all."""

import contextlib
import errno
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
from bertmill.locks import resumable_folder
from bertmill.storage import (
    manifest_entry,
    new_file,
    new_folder,
    read_json,
    read_manifest,
    renew_manifest,
    safe_join,
    verify_listed,
    verify_manifest,
    write_file,
    write_manifest,
)


def test_a_file_is_replaced_and_no_other_file_is_left(tmp_path: Path) -> None:
    write_file(tmp_path / "a.txt", "old")
    write_file(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_path_that_cannot_be_a_file_is_named_in_the_error(tmp_path: Path) -> None:
    for path, message in (
        (Path(), ".: cannot be written: it is a folder"),
        (Path("/"), "/: cannot be written: it is a folder"),
        (tmp_path, "cannot be written: it is a folder"),
        (tmp_path / "none" / "a.txt", f"a.txt: cannot be written: the folder {tmp_path / 'none'} does not exist"),
    ):
        with pytest.raises(UsageError) as caught:
            write_file(path, "text")
        assert message in str(caught.value)


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "a.txt", "old")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ResourceError, match="No space left"):
        write_file(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.ESTALE])
def test_every_failed_write_is_a_resource_error(tmp_path: Path, number: int) -> None:
    with contextlib.chdir(tmp_path):
        for write in (new_file, new_folder, resumable_folder):
            with pytest.raises(ResourceError, match="a: cannot be written"), write(Path("a")):
                raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOTCONN])
def test_a_file_that_cannot_be_made_durable_is_a_resource_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ResourceError, match="a: cannot be written"):
        write_file(tmp_path / "a", "text")


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


def test_a_folder_never_appears_after_an_error(tmp_path: Path) -> None:
    def fail() -> None:
        with new_folder(tmp_path / "out") as folder:
            (folder / "a").write_text("a")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="already exists"), new_folder(tmp_path / "out"):
        pass


def test_the_manifest_detects_missing_truncated_and_changed_files(tmp_path: Path) -> None:
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


def test_a_manifest_without_a_format_number_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {"a": manifest_entry(tmp_path / "a")}}))
    verify_manifest(tmp_path)
    write_manifest(tmp_path, ["a"])
    assert read_json(tmp_path / "manifest.json")["format"] == 1


@pytest.mark.parametrize("number", [2, 0, "1", None])
def test_a_manifest_of_an_unsupported_format_gives_a_one_line_error(tmp_path: Path, number: object) -> None:
    write_manifest(tmp_path)
    content = {**read_json(tmp_path / "manifest.json"), "format": number}
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    remedy = "upgrade bertmill" if number == 2 else "restore the file"
    message = rf"manifest\.json: has format {number!r}, but this version of bertmill supports format 1; {remedy}"
    for open_folder in (verify_manifest, read_manifest, lambda folder: write_manifest(folder, [])):
        with pytest.raises(IntegrityError, match=message):
            open_folder(tmp_path)


def test_written_files_have_the_default_mode(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "a").chmod(0o600)
    write_manifest(tmp_path)
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~umask


def test_new_folder_does_not_change_errors_of_the_caller(tmp_path: Path) -> None:
    def read_a_missing_file() -> None:
        with new_folder(tmp_path / "out"):
            Path("absent").read_text()

    with pytest.raises(FileNotFoundError, match="absent"):
        read_a_missing_file()


def test_a_missing_folder_or_a_file_in_its_place_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "absent/a", tmp_path / "file/a", tmp_path / ("a" * 300)):
        with pytest.raises(UsageError, match="cannot be written"):
            write_file(path, "x")


def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="it is not a regular file"):
        write_file(tmp_path / "pipe", "x")
    assert (tmp_path / "pipe").is_fifo()


def test_a_manifest_can_be_updated_for_selected_files(tmp_path: Path) -> None:
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


def test_only_listed_files_are_verified(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    verify_listed(tmp_path, ["a", "b"])  # there is no manifest
    write_manifest(tmp_path, ["a"])
    (tmp_path / "b").write_text("changed")
    verify_listed(tmp_path, ["a", "b", "absent"])
    verify_listed(tmp_path, ["b"])
    (tmp_path / "a").unlink()
    with pytest.raises(IntegrityError, match="a is missing"):
        verify_listed(tmp_path, ["a", "b"])


def test_a_renewed_manifest_lists_present_files_and_keeps_facts(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).write_text(name)
    write_manifest(tmp_path, ["a", "b"], facts={"fact": 1})
    (tmp_path / "a").write_text("changed")
    (tmp_path / "b").unlink()
    renew_manifest(tmp_path, ["c", "absent"])
    manifest = read_manifest(tmp_path)
    assert (manifest["fact"], list(manifest["files"])) == (1, ["a", "c"])
    verify_manifest(tmp_path)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "link/x", "a\0b", "a" * 300, "loop/x"])
def test_a_name_that_is_invalid_or_points_outside_the_folder_is_rejected(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to("/tmp")
    (root / "loop").symlink_to("loop")
    with pytest.raises(IntegrityError):
        safe_join(root, name)


@given(st.text())
def test_a_joined_path_is_inside_the_folder_or_rejected(name: str) -> None:
    root = Path("/some/root")
    with contextlib.suppress(IntegrityError, UnicodeEncodeError):
        assert safe_join(root, name).is_relative_to(root)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"{", "not JSON"), (b"[]", "not a JSON object"), (b"[" * 200_000, "nested"), (b" " * 2000, "2,000 bytes")],
)
def test_invalid_json_is_rejected(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(IntegrityError, match=problem):
        read_json(tmp_path / "a.json", max_bytes=1000 if problem.startswith("2") else 1_000_000)


def test_facts_are_stored_next_to_the_list_of_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    write_manifest(tmp_path, facts={"corpus": {"pieces": 3}})
    assert read_json(tmp_path / "manifest.json")["corpus"] == {"pieces": 3}
    verify_manifest(tmp_path)
    write_manifest(tmp_path, ["a"])
    assert read_json(tmp_path / "manifest.json")["corpus"] == {"pieces": 3}
