"""Transfers that fail, servers that do not behave, and names that are typos each give one clear error."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants, hf_hub_download

from bertmill.checkpoint.names import find_model
from bertmill.errors import MissingError, ResourceError, UsageError
from bertmill.text.tokenizer import BertTokenizer
from tests.conftest import RunCommand
from tests.hub import NAME
from tests.hub_server import Hub

WEIGHTS = "model.safetensors"


@pytest.mark.parametrize("fault", ["truncated", "redirect loop", "server error", "server error of the content"])
def test_a_transfer_that_fails_names_the_file_and_the_cause(hub: Hub, fault: str) -> None:
    if fault == "truncated":
        hub.breaks_after, hub.breaks_always = 0, True
        cause = "peer closed connection"
    elif fault == "redirect loop":
        hub.answers[WEIGHTS] = (302, {"Location": f"{hub.url}/cdn/{NAME}/resolve/{WEIGHTS}"})
        cause = "Exceeded maximum allowed redirects"
    elif fault == "server error":
        hub.file_statuses[WEIGHTS] = 500
        cause = "the server answered 500"
    else:
        hub.answers[WEIGHTS] = (500, {})
        cause = "the server answered 500"
    with pytest.raises(ResourceError, match=f"^{NAME}: {WEIGHTS} cannot be downloaded: {cause}") as error:
        find_model(NAME)
    assert error.value.remedy == "run the command again"
    assert error.value.exit_code == 6


def test_the_advice_of_the_library_is_not_repeated(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def transfer(*_arguments: Any, **_named: Any) -> str:
        raise OSError("Consistency check failed: size 5.\nPlease retry with `force_download=True`.")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", transfer)
    with pytest.raises(ResourceError, match="cannot be downloaded: Consistency check failed: size 5; run the"):
        find_model(NAME)


def test_a_full_disk_does_not_suggest_to_repeat(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def transfer(*_arguments: Any, **_named: Any) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", transfer)
    with pytest.raises(ResourceError, match=r"No space left on device$"):
        find_model(NAME)


@pytest.mark.parametrize(("status", "remedy"), [(401, "check HF_TOKEN"), (429, "wait a few minutes")])
def test_a_file_that_is_refused_gives_the_remedy_of_the_status(hub: Hub, status: int, remedy: str) -> None:
    hub.file_statuses[WEIGHTS] = status
    with pytest.raises(ResourceError, match=f"answered {status} for .*; {remedy}"):
        find_model(NAME)


def test_a_server_that_does_not_answer_is_not_waited_for(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.1)
    hub.delay_s = 2
    with pytest.raises(MissingError, match=r"cannot be reached \(ReadTimeout\)"):
        find_model(NAME)


def test_a_server_that_announces_no_hashes_is_an_error_before_the_download(hub: Hub) -> None:
    hub.announces_hashes = False
    with pytest.raises(ResourceError, match="does not announce the hashes of files, so a download cannot be verified"):
        find_model(NAME)
    assert not any("/resolve/" in request for request in hub.requests)


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:99999", "", "127.0.0.1:80", "http://", "http://[::1", "ftp://x"]
)
def test_an_endpoint_that_is_not_an_address_is_an_error(
    bertmill_process: RunCommand, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    result = bertmill_process("download", NAME)
    assert (result.returncode, result.stderr) == (
        2,
        f"bertmill: HF_ENDPOINT is {endpoint!r}, which is not the address of a server; "
        "unset it, or set it to an address such as https://huggingface.co\n",
    )


@pytest.mark.parametrize("info", ["null", "[]"])
def test_an_answer_without_content_is_one_clear_error(hub: Hub, info: str, bertmill: RunCommand) -> None:
    hub.info = json.loads(info)
    result = bertmill("download", NAME)
    assert (result.returncode, result.stderr) == (
        6,
        f"bertmill: the answer of {hub.url} is not that of a Hugging Face Hub\n",
    )


@pytest.mark.parametrize("how", ["HF_HUB_OFFLINE", "local_files_only"])
def test_offline_settings_and_weights_are_enough(hub: Hub, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("config.json", WEIGHTS):
        hf_hub_download(NAME, name)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", how == "HF_HUB_OFFLINE")
    is_local = how == "local_files_only"
    assert (find_model(NAME, local_files_only=is_local) / WEIGHTS).is_file()
    with pytest.raises(MissingError, match=r"contains neither tokenizer.json nor vocab.txt"):
        BertTokenizer.from_pretrained(NAME, local_files_only=is_local)


def test_offline_pickled_weights_say_what_to_do(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("config.json", "pytorch_model.bin"):
        hf_hub_download(NAME, name)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match=r"the cache has .* with only pytorch_model.bin, a pickle file.*; convert it"):
        find_model(NAME)


def test_a_misspelled_name_gets_a_suggestion(hub: Hub) -> None:
    with pytest.raises(MissingError, match=r"did you mean minilm\? If not, set HF_TOKEN if it is private"):
        find_model("miniml")
    with pytest.raises(MissingError, match=r"it is not a name on the Hub; did you mean minilm\?$"):
        find_model("minilm/")


def test_a_name_that_may_be_a_path_gets_a_hint(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    with pytest.raises(
        MissingError, match=r"^no model folder, .* is named 'runs/model', .*; check the path; installed"
    ):
        find_model("runs/model")
    Path("someone").mkdir()
    assert find_model(NAME).is_dir()  # the Hub has it


def test_an_installed_model_has_no_revisions() -> None:
    assert find_model("minilm", "main") == find_model("minilm")
    with pytest.raises(UsageError, match="'minilm' is installed with a package, so it has no revision 'v2'"):
        find_model("minilm", "v2")
