"""`bertmill check --accept` on folders that another program changed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertmill.storage import verify_manifest
from tests.conftest import RunCommand

Change = Callable[[Path], None]


@pytest.fixture
def model(classifier: Path, tmp_path: Path) -> Path:
    return shutil.copytree(classifier, tmp_path / "model")


def edit_json(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def use_other_weights(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["classifier.weight"] *= 2
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def make_the_tokenizer_cased(folder: Path) -> None:
    edit_json(folder / "tokenizer_config.json", do_lower_case=False)


def swap_two_pieces(folder: Path) -> None:
    (folder / "vocab.txt").unlink()
    pipeline = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = pipeline["model"]["vocab"]
    vocabulary["good"], vocabulary["bad"] = vocabulary["bad"], vocabulary["good"]
    (folder / "tokenizer.json").write_text(json.dumps(pipeline))


def shorten_windows(folder: Path) -> None:
    edit_json(folder / "bertmill.json", windows={"max_length": 8})


def remove_vocab_txt(folder: Path) -> None:  # tokenizer.json is enough
    (folder / "vocab.txt").unlink()


ACCEPTABLE: list[Change] = [
    use_other_weights,
    make_the_tokenizer_cased,
    swap_two_pieces,
    shorten_windows,
    remove_vocab_txt,
]


@pytest.mark.parametrize("change", ACCEPTABLE)
def test_a_changed_file_is_an_error_until_it_is_accepted(bertmill: RunCommand, model: Path, change: Change) -> None:
    other = model / "notes/read me.txt"
    other.parent.mkdir()
    other.write_text("not a file of the model")
    change(model)
    done = bertmill("predict", model, "--text", "good")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.count("\n") == 1
    assert f"accept deliberate changes to a model with `bertmill check {model} --accept`" in done.stderr
    done = bertmill("check", model, "--accept")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "accepted" in done.stdout
    verify_manifest(model)
    assert other.name not in (model / "manifest.json").read_text()
    assert bertmill("predict", model, "--text", "good").returncode == 0
    assert bertmill("check", model).returncode == 0


def put_a_nan(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["classifier.bias"][1] = torch.nan
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def drop_the_head(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("classifier.")}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


def change_the_size(folder: Path) -> None:
    edit_json(folder / "config.json", intermediate_size=64)


def rename_a_piece_in_one_file(folder: Path) -> None:
    pieces = (folder / "vocab.txt").read_text()
    (folder / "vocab.txt").write_text(pieces.replace("\ngood\n", "\ngoodness\n"))


def make_the_tokenizer_larger(folder: Path) -> None:
    pipeline = json.loads((folder / "tokenizer.json").read_text())
    pipeline["model"]["vocab"]["new piece"] = len(pipeline["model"]["vocab"])
    (folder / "tokenizer.json").write_text(json.dumps(pipeline))


def change_the_task(folder: Path) -> None:
    edit_json(folder / "bertmill.json", task="tag")


def break_the_windows(folder: Path) -> None:
    edit_json(folder / "bertmill.json", windows={"max_length": "long"})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (put_a_nan, "NaN or infinity in classifier.bias"),
        (drop_the_head, "the weights have no head for the task"),
        (change_the_size, "intermediate.dense.weight has shape"),
        (rename_a_piece_in_one_file, "vocab.txt: gives 'goodness' the id "),
        (make_the_tokenizer_larger, "but the embedding has"),
        (change_the_task, "does not match the head of the model"),
        (break_the_windows, "has no valid window settings"),
    ],
)
def test_a_model_that_does_not_work_is_not_accepted(
    bertmill: RunCommand, model: Path, spoil: Change, words: str
) -> None:
    before = (model / "manifest.json").read_bytes()
    spoil(model)
    done = bertmill("check", model, "--accept")
    assert done.returncode == 4
    assert words in done.stdout + done.stderr
    assert (model / "manifest.json").read_bytes() == before
    (model / "manifest.json").unlink()
    assert bertmill("check", model, "--accept").returncode == 4


def test_a_vocabulary_is_accepted_and_a_corpus_is_not(bertmill: RunCommand, corpus: Path, tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocabulary"
    (tmp_path / "a.txt").write_text("a few words of text " * 100)
    assert bertmill("vocab", "a.txt", "--out", vocabulary, "--size", "60", "--workers", "1").returncode == 0
    make_the_tokenizer_cased(vocabulary)
    assert bertmill("tokenize", "--model", vocabulary, "--text", "A").returncode == 4
    assert bertmill("check", vocabulary, "--accept").returncode == 0
    assert bertmill("tokenize", "--model", vocabulary, "--text", "A").returncode == 0
    (vocabulary / "tokenizer.json").write_text("{}")
    assert bertmill("check", vocabulary, "--accept").returncode == 4
    for path in (corpus, vocabulary / "vocab.txt"):
        done = bertmill("check", path, "--accept")
        assert done.returncode == 2
        assert "--accept needs a model or vocabulary folder" in done.stderr
