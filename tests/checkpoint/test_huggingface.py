"""Hugging Face folders: every naming scheme is read, round trips keep every byte, hostile folders are rejected."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from model_folders import SMALL, resettle, rewrite
from safetensors.torch import load_file

import bertmill
from bertmill import BertConfig, BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, BertModel
from bertmill.checkpoint.huggingface import BODY_RULES, OLD_RULES, canonical, hugging_face_name, open_folder
from bertmill.errors import BertmillError, IntegrityError, UsageError
from bertmill.model.registry import MODEL_CLASSES
from bertmill.storage import verify_manifest

CLASSES = [name for name in MODEL_CLASSES if hasattr(transformers, name)]
IDS = torch.tensor([[2, 7, 9, 3], [2, 8, 3, 0]])


@pytest.mark.parametrize("name", CLASSES)
def test_a_round_trip_from_hugging_face_keeps_every_byte(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    theirs = getattr(transformers, name)(transformers.BertConfig(**SMALL)).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    ours = getattr(bertmill, name).from_pretrained(tmp_path / "theirs")
    ours.save_pretrained(tmp_path / "ours")
    again, info = getattr(transformers, name).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    again.save_pretrained(tmp_path / "again")
    contents = [(tmp_path / which / "model.safetensors").read_bytes() for which in ("theirs", "ours", "again")]
    assert contents[0] == contents[1] == contents[2]
    ids = IDS if name != "BertForMultipleChoice" else IDS[None]
    for mine, other in zip(ours(ids).to_tuple(), again.eval()(ids).to_tuple(), strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=0)


def test_the_same_model_saved_twice_has_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    model = BertForPreTraining.from_pretrained(folder)
    for which in ("a", "b"):
        model.save_pretrained(tmp_path / which)
    for name in ("config.json", "model.safetensors", "manifest.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        assert (tmp_path / "a" / name).read_bytes() == (folder / name).read_bytes()


def test_files_get_the_default_mode(folder: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o666 & ~umask}


def test_a_model_can_be_saved_next_to_a_tokenizer_and_over_an_older_model(folder: Path) -> None:
    (folder / "vocab.txt").write_text("[PAD]\n")
    (folder / "secret").touch(0o600)
    model = BertForMaskedLM(BertConfig(**SMALL))
    model.save_pretrained(folder)
    verify_manifest(folder)
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    assert sorted(listed) == ["config.json", "model.safetensors", "vocab.txt"]
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600
    assert not [path for path in folder.iterdir() if path.name.startswith(".tmp-")]
    loaded = BertForMaskedLM.from_pretrained(folder)
    assert torch.equal(loaded.cls.predictions.decoder.weight, model.cls.predictions.decoder.weight)


def test_a_body_without_prefix_loads_into_a_task_model(folder: Path, tmp_path: Path) -> None:
    body = BertModel.from_pretrained(folder)
    body.save_pretrained(tmp_path / "body")
    assert "embeddings.word_embeddings.weight" in load_file(tmp_path / "body" / "model.safetensors")
    task = BertForSequenceClassification.from_pretrained(tmp_path / "body")
    assert torch.equal(task.bert.pooler.dense.weight, body.pooler.dense.weight)


def old_names(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    swapped = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = {}
    for name, tensor in tensors.items():
        for new, old in swapped.items():
            name = name.replace(new, old)
        renamed[name] = tensor
    return renamed


def second_names(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        **tensors,
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"].clone(),
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"].clone(),
        "bert.embeddings.position_ids": torch.arange(20)[None],
    }


def only_decoder_bias(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    tensors = second_names(tensors)
    del tensors["cls.predictions.bias"]
    return tensors


@pytest.mark.parametrize("rename", [old_names, second_names, only_decoder_bias])
def test_every_naming_scheme_gives_the_same_model(rename: Callable[..., Any], folder: Path) -> None:
    before = BertForPreTraining.from_pretrained(folder)(IDS)
    rewrite(folder, rename)
    model = BertForPreTraining.from_pretrained(folder)
    assert torch.equal(before.prediction_logits, model(IDS).prediction_logits)
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_files_are_loaded_and_saved_as_float32(dtype: torch.dtype, folder: Path, tmp_path: Path) -> None:
    rewrite(folder, lambda tensors: {name: tensor.to(dtype) for name, tensor in tensors.items()})
    resettle(folder, dtype=str(dtype).removeprefix("torch."))
    model = BertForPreTraining.from_pretrained(folder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    model.save_pretrained(tmp_path / "saved")
    assert transformers.BertForPreTraining.from_pretrained(tmp_path / "saved").dtype == torch.float32


def test_weights_in_several_files_give_one_model(folder: Path, tmp_path: Path) -> None:
    theirs = transformers.BertForPreTraining.from_pretrained(folder)
    theirs.save_pretrained(tmp_path / "sharded", max_shard_size="5KB")
    assert len(list((tmp_path / "sharded").glob("model-*.safetensors"))) > 1
    ours = BertForPreTraining.from_pretrained(tmp_path / "sharded")
    expected = BertForPreTraining.from_pretrained(folder).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in ours.state_dict().items())


def test_installed_models_are_found_by_name() -> None:
    assert BertModel.from_pretrained("minilm").config.hidden_size == 384
    with pytest.raises(UsageError, match="minilm"):
        BertModel.from_pretrained("no-such-model")


class Canary:
    """Unpickling this would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def truncate(folder: Path, canary: Path) -> None:
    (folder / "manifest.json").unlink()
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_bit(folder: Path, canary: Path) -> None:
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 16
    path.write_bytes(data)


def put_a_pickle(folder: Path, canary: Path) -> None:
    (folder / "manifest.json").unlink()
    (folder / "model.safetensors").write_bytes(pickle.dumps(Canary(canary)))


def leave_only_a_pickle(folder: Path, canary: Path) -> None:
    (folder / "manifest.json").unlink()
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Canary(canary)))


def nest_deep(folder: Path, canary: Path) -> None:
    (folder / "config.json").write_text('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")


def make_huge(folder: Path, canary: Path) -> None:
    with (folder / "config.json").open("wb") as file:
        file.truncate(100 << 20)


def name_shards_outside(folder: Path, canary: Path) -> None:
    (folder / "manifest.json").unlink()
    (folder / "model.safetensors").rename(folder.parent / "x")
    index = {"weight_map": {"bert.pooler.dense.bias": "../x"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def lie_about_lengths(folder: Path, canary: Path) -> None:
    (folder / "manifest.json").unlink()
    (folder / "model.safetensors").write_bytes((1 << 60).to_bytes(8, "little") + b"{}")


def grow_the_vocabulary(folder: Path, canary: Path) -> None:
    (folder / "vocab.txt").write_text("piece\n" * 51)


def untie(folder: Path, canary: Path) -> None:
    weight = torch.zeros(50, 16)
    rewrite(folder, lambda tensors: {**tensors, "cls.predictions.decoder.weight": weight})


def take_out_of_the_manifest(folder: Path, canary: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"]["model.safetensors"]
    (folder / "manifest.json").write_text(json.dumps(manifest))


def claim_many_labels(folder: Path, canary: Path) -> None:
    rewrite(folder, lambda tensors: {**tensors, "classifier.bias": torch.zeros(5_000_000, 0)})
    resettle(folder, num_labels=5_000_000, id2label={"0": "a"})


def name_a_tensor_badly(folder: Path, canary: Path) -> None:
    rewrite(folder, lambda tensors: {**tensors, "evil\n\x1b[31mname": torch.zeros(1)})


HOSTILE = {
    "not in the manifest": (take_out_of_the_manifest, "model.safetensors is not in manifest.json"),
    "name of a tensor": (name_a_tensor_badly, "is unexpected"),
    "label2id": (lambda folder, _: resettle(folder, label2id={"a": []}), "label2id"),
    "label": (lambda folder, _: resettle(folder, id2label={"0": "\ud800", "1": "b"}), "cannot be printed"),
    "truncated": (truncate, "not a complete safetensors file"),
    "flipped bit": (flip_a_bit, "sha256 differs"),
    "pickle in disguise": (put_a_pickle, "not a complete safetensors file"),
    "only a pickle": (leave_only_a_pickle, "could run code"),
    "nested": (nest_deep, "nested too deeply"),
    "100 MB": (make_huge, "bytes"),
    "path": (name_shards_outside, "points outside the folder"),
    "length": (lie_about_lengths, "not a complete safetensors file"),
    "hidden size": (lambda folder, _: resettle(folder, hidden_size=10**9), "hidden_size is 1000000000"),
    "layers": (lambda folder, _: resettle(folder, num_hidden_layers=900), "is missing"),
    "large but allowed": (lambda folder, _: resettle(folder, hidden_size=65536, intermediate_size=262144), "has shape"),
    "shape": (lambda folder, _: resettle(folder, hidden_size=32), "has shape [50, 16] instead of [50, 32]"),
    "no JSON": (lambda folder, _: (folder / "config.json").write_bytes(b"\xff{"), "is not JSON"),
    "NaN": (lambda folder, _: resettle(folder, layer_norm_eps=float("nan")), "layer_norm_eps is nan"),
    "a list": (lambda folder, _: (folder / "config.json").write_text("[]"), "is not a JSON object"),
    "no config": (lambda folder, _: (folder / "config.json").unlink(), "is not a model folder: config.json is missing"),
    "no weights": (lambda folder, _: (folder / "model.safetensors").unlink(), "has no model.safetensors"),
    "vocabulary": (grow_the_vocabulary, "has 51 pieces"),
    "untied": (untie, "differs from"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_folder_gives_a_one_line_error_and_runs_no_code(case: str, folder: Path, tmp_path: Path) -> None:
    spoil, words = HOSTILE[case]
    canary = tmp_path / "canary"
    spoil(folder, canary)
    with pytest.raises(BertmillError) as caught:
        BertForPreTraining.from_pretrained(folder)
    assert caught.value.exit_code in (2, 4)
    assert words in str(caught.value)
    assert str(caught.value).isprintable()
    assert not canary.exists()


OPEN_WITH_LITTLE_MEMORY = """
import resource, sys, torch
from bertmill import BertForPreTraining
from bertmill.errors import BertmillError
in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + (200 << 20),) * 2)
try:
    torch.empty(300 << 20, dtype=torch.uint8)
except RuntimeError:
    print("the limit holds")
for folder in sys.argv[1:]:
    try:
        BertForPreTraining.from_pretrained(folder)
    except BertmillError:
        print("refused", folder)
"""


def test_hostile_folders_are_rejected_with_little_memory(folder: Path, tmp_path: Path) -> None:
    folders = []
    for number, (spoil, _) in enumerate(HOSTILE.values()):
        folders.append(shutil.copytree(folder, tmp_path / f"folder-{number}"))
        spoil(folders[-1], tmp_path / "canary")
    done = subprocess.run(
        [sys.executable, "-c", OPEN_WITH_LITTLE_MEMORY, *folders], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["the limit holds", *(f"refused {spoilt}" for spoilt in folders)]


def test_the_number_of_labels_in_a_hostile_head_is_ignored(folder: Path, tmp_path: Path) -> None:
    claim_many_labels(folder, tmp_path)
    started = time.process_time()
    assert BertForPreTraining.from_pretrained(folder).config.num_labels == 1
    assert time.process_time() - started < 1


def test_a_pad_token_id_of_none_survives_a_round_trip(tmp_path: Path) -> None:
    BertForMaskedLM(BertConfig(**{**SMALL, "pad_token_id": None})).save_pretrained(tmp_path / "model")
    assert BertForMaskedLM.from_pretrained(tmp_path / "model").config.pad_token_id is None


@pytest.mark.parametrize("name", CLASSES)
def test_tensor_names_are_converted_to_canonical_names_and_back(name: str) -> None:
    with torch.device("meta"):
        theirs = list(getattr(transformers, name)(transformers.BertConfig(**SMALL)).state_dict())
    names = [canonical(each) for each in theirs]
    assert not [each for each in names if each.startswith("bert.")]
    if name != "BertModel":  # its names are already canonical
        assert [hugging_face_name(each) for each in names] == theirs
    old = [hugging_face_name(each, (*OLD_RULES, *BODY_RULES)) for each in names]
    assert [canonical(each) for each in old] == names
    assert not [each for each in old if each.endswith(("LayerNorm.weight", "LayerNorm.bias"))]


def test_a_folder_whose_metadata_has_a_newer_format_is_rejected(folder: Path) -> None:
    (folder / "bertmill.json").write_text('{"format": 99}', encoding="utf-8")
    with pytest.raises(IntegrityError, match="has format 99, but this version of bertmill supports format 1"):
        open_folder(folder)
