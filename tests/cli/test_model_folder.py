"""`bertmill inspect` and `bertmill check` on a model."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertmill import BertConfig, BertForSequenceClassification, BertTokenizer, storage
from bertmill.cli.model_folder import checks
from bertmill.text.vocabulary import SPECIAL_TOKENS
from tests.conftest import RunCommand


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small classifier with its tokenizer."""
    path = tmp_path / "model"
    pieces = {piece: number for number, piece in enumerate([*SPECIAL_TOKENS, "a", "b"])}
    labels = {0: "negative", 1: "neutral", 2: "positive"}
    config = BertConfig.of_size("tiny", vocab_size=8, num_hidden_layers=1, id2label=labels)
    BertForSequenceClassification(config).save_pretrained(path)
    BertTokenizer(pieces, model_max_length=512).save_pretrained(path)
    return path


@pytest.mark.parametrize("command", ["inspect", "check"])
def test_control_characters_in_the_name_of_a_folder_are_escaped(
    command: str, bertmill: RunCommand, folder: Path
) -> None:
    done = bertmill(command, folder.rename(folder.with_name("a\x1b[1m")))
    assert done.returncode == 0
    assert "a\\x1b[1m" in done.stdout
    assert "\x1b" not in done.stdout


def test_inspect_describes_a_model(bertmill: RunCommand, folder: Path) -> None:
    done = bertmill("inspect", folder)
    assert done.returncode == 0
    for words in (
        "is a BERT model with 1 layer and hidden size 128",
        "labels:     negative, neutral, positive",
        "heads:      pooler (one vector per sequence); labels",
        "vocabulary: 7 pieces, uncased",
        "BertForSequenceClassification",
    ):
        assert words in done.stdout
    facts = json.loads(bertmill("inspect", folder, "--json").stdout)
    assert facts["labels"] == ["negative", "neutral", "positive"]
    assert facts["weights"] == sum(tensor.numel() for tensor in load_file(folder / "model.safetensors").values())


def test_inspect_knows_the_sizes_by_name(bertmill: RunCommand, folder: Path) -> None:
    assert json.loads(bertmill("inspect", folder, "--json").stdout)["size"] is None
    BertForSequenceClassification(BertConfig.of_size("tiny", vocab_size=8)).save_pretrained(folder)
    assert "(size tiny)" in bertmill("inspect", folder).stdout


def test_check_finds_nothing_wrong_with_a_good_model(bertmill: RunCommand, folder: Path) -> None:
    done = bertmill("check", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["ok", "hashes:"],
        ["ok", "shapes:"],
        ["ok", "values:"],
        ["ok", "tokenizer:"],
        ["ok", "metadata:"],
    ]


def change_a_setting(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(path.read_text().replace('"do_lower_case": true', '"do_lower_case":false'))


def put_a_nan(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    tensors = load_file(folder / "model.safetensors")
    tensors["classifier.bias"][1] = torch.nan
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def drop_a_tensor(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    tensors = load_file(folder / "model.safetensors")
    del tensors["bert.encoder.layer.0.output.dense.bias"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def make_the_tokenizer_too_long(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": 1024}))
    (folder / "manifest.json").unlink()


def remove_the_vocabulary(folder: Path) -> None:
    for name in ("manifest.json", "vocab.txt", "tokenizer.json"):
        (folder / name).unlink()


@pytest.mark.parametrize(
    ("spoil", "wrong", "words"),
    [
        (change_a_setting, "hashes", "tokenizer_config.json has changed since it was written"),
        (put_a_nan, "values", "NaN or infinity in classifier.bias"),
        (drop_a_tensor, "shapes", "bert.encoder.layer.0.output.dense.bias [128] is missing"),
        (make_the_tokenizer_too_long, "tokenizer", "it allows 1024 pieces, but the model has 512 positions"),
        (remove_the_vocabulary, "tokenizer", "contains neither tokenizer.json nor vocab.txt"),
    ],
)
def test_check_names_what_is_wrong(bertmill: RunCommand, folder: Path, spoil: object, wrong: str, words: str) -> None:
    spoil(folder)  # type: ignore[operator]
    done = bertmill("check", folder)
    assert done.returncode == 4
    assert f"FAILED {wrong}: " in done.stdout
    assert words in done.stdout
    assert f"1 of 5 checks failed: {wrong}" in done.stderr


@pytest.mark.parametrize("command", ["inspect", "check"])
def test_a_folder_that_cannot_be_opened_gives_one_line(bertmill: RunCommand, folder: Path, command: str) -> None:
    (folder / "model.safetensors").write_bytes(b"\x80\x04 not a model")
    done = bertmill(command, folder)
    assert done.returncode == 4
    assert len(done.stderr.splitlines()) == 1
    assert bertmill(command, "no-such-model").returncode == 2


def test_check_hashes_every_file_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []
    hash_of = storage.sha256_of
    monkeypatch.setattr(storage, "sha256_of", lambda path: hashed.append(path.name) or hash_of(path))
    for check in checks(folder).values():
        check()
    assert "model.safetensors" in hashed
    assert len(hashed) == len(set(hashed))
