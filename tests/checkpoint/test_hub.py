"""Models are found in the Hugging Face cache or downloaded, completely and unchanged, or there is one clear error."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants, hf_hub_download
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from bertmill.checkpoint.hub import cached_model, download_model, is_repository
from bertmill.checkpoint.names import find_model, find_model_or_file
from bertmill.errors import BertmillError, IntegrityError, ResourceError, UsageError
from bertmill.model.bert import BertModel
from bertmill.text.tokenizer import BertTokenizer
from tests.hub import NAME
from tests.hub_server import COMMIT, Hub


def test_only_the_needed_files_are_downloaded_and_the_model_opens(hub: Hub, hub_files: dict[str, bytes]) -> None:
    folder = find_model(NAME)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == hub_files
    assert BertModel.from_pretrained(NAME).config.num_hidden_layers == 1
    assert BertTokenizer.from_pretrained(NAME).tokenize("good film") == ["good", "film"]


def test_a_cached_model_needs_no_request(hub: Hub) -> None:
    folder = find_model(NAME)
    hub.requests.clear()
    assert find_model(NAME) == folder
    assert not hub.requests


def test_a_commit_can_be_selected(hub: Hub) -> None:
    assert find_model(NAME, COMMIT).name == COMMIT
    with pytest.raises(UsageError, match="has no revision 'v9'"):
        find_model(NAME, "v9")
    with pytest.raises(UsageError, match="not a valid revision"):
        find_model(NAME, "../../main")


def test_a_broken_transfer_is_resumed(hub: Hub, hub_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 10_000)
    hub.breaks_after = 50_000
    folder = find_model(NAME)
    assert (folder / "model.safetensors").read_bytes() == hub_files["model.safetensors"]
    assert hub.ranges == ["bytes=50000-"]


@pytest.mark.parametrize("name", ["model.safetensors", "vocab.txt"])
def test_a_file_with_another_hash_is_removed(hub: Hub, hub_files: dict[str, bytes], name: str, hub_cache: Path) -> None:
    hub.announced[name] = hub_files[name][:-1] + b"?"
    with pytest.raises(IntegrityError, match=f"{name} does not have the hash"):
        find_model(NAME)
    assert cached_model(NAME) is None
    assert not list(hub_cache.rglob(name))
    hub.announced.clear()
    assert (find_model(NAME) / name).read_bytes() == hub_files[name]


def test_an_incomplete_cache_is_completed(hub: Hub) -> None:
    folder = find_model(NAME)
    (folder / "model.safetensors").unlink()
    assert cached_model(NAME) is None
    assert (find_model(NAME) / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("status", "code", "kind", "message"),
    [
        (401, "RepoNotFound", UsageError, "installed models: minilm; set HF_TOKEN if it is private"),
        (404, "RepoNotFound", UsageError, "and no public model on"),
        (403, "GatedRepo", UsageError, "accept its terms"),
        (401, "", ResourceError, "answered 401 .*; check HF_TOKEN"),
        (403, "", ResourceError, "answered 403 .*; check that HF_TOKEN gives access"),
        (429, "", ResourceError, "answered 429 .*; wait a few minutes"),
        (200, "", ResourceError, "cannot be downloaded"),  # not the answer of a hub
        (500, "", ResourceError, "answered 500"),
    ],
)
def test_an_answer_of_the_hub_becomes_one_line(
    hub: Hub, status: int, code: str, kind: type[BertmillError], message: str
) -> None:
    hub.statuses[NAME] = (status, code)
    with pytest.raises(kind, match=message) as error:
        find_model(NAME)
    assert "\n" not in str(error.value)


def test_a_private_model_needs_the_token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "hf_secret"
    with pytest.raises(UsageError, match="set HF_TOKEN"):
        find_model(NAME)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert find_model(NAME).is_dir()


def test_a_repository_with_pickled_weights_says_what_to_do(hub: Hub) -> None:
    del hub.repositories[NAME]["model.safetensors"]
    with pytest.raises(UsageError, match=r"only pytorch_model.bin, a pickle file.*convert it"):
        find_model(NAME)
    del hub.repositories[NAME]["config.json"]
    with pytest.raises(UsageError, match=r"no config.json"):
        find_model(NAME)


def test_sharded_weights_are_downloaded(hub: Hub) -> None:
    repository = hub.repositories[NAME]
    repository["model-00001-of-00001.safetensors"] = repository.pop("model.safetensors")
    repository["model.safetensors.index.json"] = b'{"weight_map": {"x": "model-00001-of-00001.safetensors"}}'
    assert (find_model(NAME) / "model-00001-of-00001.safetensors").is_file()


def test_offline_nothing_is_requested(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match="HF_HUB_OFFLINE is set; installed models: minilm; unset"):
        find_model(NAME)
    assert not hub.requests


def test_without_a_network_the_error_lists_the_installed_models(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UsageError, match=r"cannot be reached.*installed models: minilm"):
        find_model(NAME)


BAD_NAMES = [
    "../x",
    "/etc",
    "~",
    "~/x",
    "a\0b",
    "a\nb",
    "x" * 300,
    "a/b/c",
    ".hidden",
    "a--b",
    "a..b",
    "a/",
    "-x",
    "a.git",
    "a/b.git",
    "é",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_rejected_without_a_request(hub: Hub, hub_cache: Path, name: str) -> None:
    assert not is_repository(name)
    if not os.path.isdir(name.replace("\0", "")):  # noqa: PTH112 (`/etc` is a folder)
        for find in (find_model, find_model_or_file, BertModel.from_pretrained, BertTokenizer.from_pretrained):
            with pytest.raises(UsageError, match="is not a name on the Hub; installed models: minilm") as error:
                find(name)
            assert "\n" not in str(error.value)
    assert not hub.requests
    assert not hub_cache.exists()


def test_names_of_the_hub_are_accepted() -> None:
    assert all(map(is_repository, ["bert-base-uncased", "google/bert_uncased_L-2_H-128_A-2", "a", "_x/y.z-1"]))


@pytest.mark.parametrize(
    "first", ["a", "a.", "a-", "a_", "_", "a--b", "a..b", "a.git", "a.gitx", "git", "é", "0", "a b"]
)
@pytest.mark.parametrize("second", [None, "b", "b.git", "b-", "-b", ".b", "b.c", "b/c", "git", ""])
def test_only_names_that_the_library_accepts_are_names(first: str, second: str | None) -> None:
    name = first if second is None else f"{first}/{second}"
    try:
        validate_repo_id(name)
    except HFValidationError:
        assert not is_repository(name)


def test_a_link_out_of_the_cache_is_rejected(hub: Hub, tmp_path: Path) -> None:
    folder = download_model(NAME)
    secret = tmp_path / "secret.json"
    shutil.copy(folder / "config.json", secret)
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(secret)
    with pytest.raises(IntegrityError, match=r"config\.json: is a link to a file outside the Hugging Face cache"):
        find_model(NAME)


def test_a_link_out_of_the_cache_is_not_read_in_an_incomplete_snapshot(hub: Hub, tmp_path: Path) -> None:
    folder = download_model(NAME)
    for name in ("config.json", "vocab.txt"):
        (folder / name).unlink()
    (folder / "vocab.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "secret.txt").write_text("secret")
    with pytest.raises(IntegrityError, match=r"vocab\.txt: is a link to a file outside the Hugging Face cache"):
        find_model(NAME)
    assert (tmp_path / "secret.txt").read_text() == "secret"


def cached_by_transformers(hub: Hub, *names: str) -> None:
    """Download some files of the model, as another program does, to a cache that does not know the others."""
    for name in ("config.json", "model.safetensors", *names):
        hf_hub_download(NAME, name)
    hub.requests.clear()


def test_a_model_that_another_program_cached_is_completed(hub: Hub) -> None:
    hub.repositories[NAME]["bertmill.json"] = b'{"format": 1}'
    cached_by_transformers(hub, "vocab.txt", "tokenizer.json")
    assert cached_model(NAME) is None
    folder = find_model(NAME)
    assert (folder / "bertmill.json").is_file()
    assert (folder / "tokenizer_config.json").is_file()
    hub.requests.clear()
    assert find_model(NAME) == folder
    assert not hub.requests


def test_completing_a_cached_model_keeps_its_commit(hub: Hub) -> None:
    cached_by_transformers(hub, "vocab.txt")
    hub.commit = "f" * 40
    assert find_model(NAME).name == COMMIT
    assert (find_model(NAME) / "tokenizer_config.json").is_file()


@pytest.mark.parametrize("how", ["no network", "HF_HUB_OFFLINE", "local_files_only", "server error", "other token"])
def test_a_model_that_another_program_cached_is_used_if_it_cannot_be_completed(
    hub: Hub, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cached_by_transformers(hub, "vocab.txt")
    if how == "no network":
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", how == "HF_HUB_OFFLINE")
    hub.statuses = {"server error": {NAME: (500, "")}, "other token": {NAME: (401, "RepoNotFound")}}.get(how, {})
    folder = find_model(NAME, local_files_only=how == "local_files_only")
    is_warned = how not in ("HF_HUB_OFFLINE", "local_files_only")  # these say that nothing is requested
    assert ("using the cached files of someone/small-bert" in caplog.text) == is_warned
    assert BertTokenizer.from_pretrained(folder).tokenize("good") == ["good"]


def test_a_repository_without_a_tokenizer_is_an_error(hub: Hub) -> None:
    cached_by_transformers(hub)
    for name in ("vocab.txt", "tokenizer.json"):
        del hub.repositories[NAME][name]
    with pytest.raises(UsageError, match="has no tokenizer"):
        find_model(NAME)


def test_a_push_during_the_download_is_an_error(hub: Hub) -> None:
    hub.pushed = "f" * 40
    with pytest.raises(ResourceError, match="changed during the download; try again"):
        find_model(NAME)
    assert find_model(NAME).name == hub.pushed
    assert sorted(path.name for path in find_model(NAME).iterdir()) == sorted(
        path.name for path in find_model(NAME, COMMIT).iterdir()
    )


def test_a_file_that_was_not_verified_before_a_kill_is_verified_later(hub: Hub) -> None:
    folder = find_model(NAME)
    (folder / "config.json").unlink()  # as if the process had been killed before
    (folder / "vocab.txt").resolve().write_bytes(b"damaged")
    with pytest.raises(IntegrityError, match=r"vocab\.txt does not have the hash"):
        find_model(NAME)
    assert BertTokenizer.from_pretrained(NAME).tokenize("good") == ["good"]


@pytest.mark.parametrize("info", [{}, [], {"id": NAME, "sha": "../../..", "siblings": []}, {"id": NAME, "siblings": 1}])
def test_an_answer_that_is_not_that_of_a_hub_is_one_clear_error(hub: Hub, info: Any) -> None:
    hub.info = info
    with pytest.raises(ResourceError, match=r"the answer of http://127.* is not that of a Hugging Face Hub"):
        find_model(NAME)


def test_a_cached_model_may_be_moved_to_another_disk(hub: Hub, hub_cache: Path, tmp_path: Path) -> None:
    folder = find_model(NAME)
    (model,) = hub_cache.glob("models--*")
    moved = tmp_path / "disk" / model.name
    moved.parent.mkdir()
    model.rename(moved)
    model.symlink_to(moved)
    hub.requests.clear()
    assert find_model(NAME) == folder
    assert not hub.requests


def test_an_error_of_the_transfer_library_is_one_clear_error(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def transfer(*_arguments: Any, **_named: Any) -> str:
        raise RuntimeError("Data processing error")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", transfer)
    with pytest.raises(ResourceError, match="cannot be downloaded: Data processing error; run the command again"):
        find_model(NAME)
