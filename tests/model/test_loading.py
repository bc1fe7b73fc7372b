"""Arguments of from_pretrained and save_pretrained, and models with layers of their own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from equality import SMALL
from torch import Tensor, nn

import bertmill
from bertmill import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    BertPreTrainedModel,
    BertTokenizer,
)
from bertmill.checkpoint.arguments import LOADING, SAVING
from bertmill.errors import IntegrityError, UsageError
from bertmill.text.vocabulary import SPECIAL_TOKENS
from tests.hub import NAME
from tests.hub_server import COMMIT, Hub

CONFIG = BertConfig(**SMALL)
IDS = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved model for sequence classification."""
    BertForSequenceClassification(CONFIG).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, torch.float32),
        ({"dtype": "auto"}, torch.float16),
        ({"torch_dtype": torch.bfloat16}, torch.bfloat16),
        ({"dtype": "float64"}, torch.float64),
        ({"dtype": "torch.bfloat16"}, torch.bfloat16),
    ],
)
def test_dtype_selects_the_dtype_of_the_parameters(
    tmp_path: Path, arguments: dict[str, Any], expected: torch.dtype
) -> None:
    BertModel(CONFIG).half().save_pretrained(tmp_path)
    assert BertModel.from_pretrained(tmp_path, **arguments).dtype == expected


def test_a_device_map_without_a_device_is_rejected(folder: Path) -> None:
    with pytest.raises(UsageError, match="a model is on one device"):
        BertModel.from_pretrained(folder, device_map={})


DEVICE_MAPS = ["cpu", "auto", torch.device("cpu"), {"": "cpu"}, {"bert": "cpu", "head": "cpu"}]


@pytest.mark.parametrize("device_map", DEVICE_MAPS)
def test_a_device_map_with_one_device_is_that_device(folder: Path, device_map: Any) -> None:
    assert BertModel.from_pretrained(folder, device_map=device_map).device.type == "cpu"


def test_arguments_that_change_nothing_are_accepted(folder: Path) -> None:
    model = BertModel.from_pretrained(
        folder,
        use_safetensors=True,
        attn_implementation="sdpa",
        low_cpu_mem_usage=True,
        trust_remote_code=False,
        cache_dir=None,
        token=None,
        revision="main",
        local_files_only=True,
        is_decoder=False,
        use_cache=False,
        add_pooling_layer=False,
        hidden_dropout_prob=0.0,
    )
    assert model.pooler is None
    assert model.config.hidden_dropout_prob == 0.0
    BertTokenizer({piece: number for number, piece in enumerate(SPECIAL_TOKENS)}).save_pretrained(folder)
    given = {"pretrained_model_name_or_path": folder, "revision": "main", "local_files_only": True}
    assert len(BertTokenizer.from_pretrained(use_fast=True, trust_remote_code=False, **given)) == len(SPECIAL_TOKENS)
    assert BertConfig.from_pretrained(**given).to_dict() == BertConfig.from_pretrained(folder).to_dict()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"use_safetensors": False}, "use_safetensors=False is not supported; weights are only read"),
        ({"attn_implementation": "flash_attention_2"}, "bertmill has its own attention"),
        ({"quantization_config": {}}, "load the model with transformers"),
        ({"trust_remote_code": True}, "code in model folders is never run"),
        ({"device_map": "balanced"}, "a model is on one device"),
        ({"device_map": {"bert": "cpu", "classifier": "cuda:0"}}, "a model is on one device"),
        ({"device_map": "nowhere"}, "device nowhere cannot be used"),
        ({"dtype": "int8"}, "is not a floating-point dtype"),
        ({"dtype": "half precision"}, "is not a floating-point dtype"),
        ({"no_such_argument": 1}, "BertModel has no argument no_such_argument"),
        ({"add_cross_attention": True}, "only False is supported"),
    ],
)
def test_other_arguments_are_rejected_with_a_reason(folder: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BertModel.from_pretrained(folder, **arguments)


@pytest.mark.parametrize("table", [LOADING, SAVING])
def test_every_argument_that_may_be_rejected_has_a_reason(table: dict[str, Any]) -> None:
    assert all((accepted.values is None) != bool(accepted.reason) for accepted in table.values())


def test_tensors_of_another_shape_are_new_only_on_request(folder: Path) -> None:
    with pytest.raises(IntegrityError, match=r"classifier.weight has shape \[2, 32\] instead of \[7, 32\]"):
        BertForSequenceClassification.from_pretrained(folder, num_labels=7)
    model, info = BertForSequenceClassification.from_pretrained(
        folder, num_labels=7, ignore_mismatched_sizes=True, output_loading_info=True
    )
    assert model.classifier.weight.shape == (7, CONFIG.hidden_size)
    assert info["mismatched_keys"] == {("classifier.weight", (2, 32), (7, 32)), ("classifier.bias", (2,), (7,))}
    assert (info["missing_keys"], info["unexpected_keys"], info["error_msgs"]) == (set(), set(), [])


def test_a_smaller_vocabulary_may_be_requested_next_to_a_vocabulary_file(folder: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(folder, tmp_path / "copy")
    (copied / "vocab.txt").write_text("\n".join(f"piece{number}" for number in range(CONFIG.vocab_size)))
    model = BertModel.from_pretrained(copied, vocab_size=20, ignore_mismatched_sizes=True)
    assert model.embeddings.word_embeddings.weight.shape[0] == 20


def test_the_differences_are_those_of_transformers(folder: Path) -> None:
    for name in ("BertForMaskedLM", "BertModel", "BertForTokenClassification"):
        _, ours = getattr(bertmill, name).from_pretrained(folder, output_loading_info=True)
        _, theirs = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
        assert ours["missing_keys"] == set(theirs["missing_keys"]) - {"cls.predictions.decoder.bias"}  # tied
        assert ours["unexpected_keys"] == set(theirs["unexpected_keys"])


def test_saving_takes_the_arguments_of_hugging_face(tmp_path: Path) -> None:
    model = BertForMaskedLM(CONFIG)
    state = {name: value + 1 for name, value in model.state_dict().items()}
    model.save_pretrained(tmp_path / "a", state_dict=state, safe_serialization=True, max_shard_size="5GB")
    back = BertForMaskedLM.from_pretrained(tmp_path / "a")
    assert torch.equal(back.cls.predictions.bias, model.cls.predictions.bias + 1)
    model.save_pretrained(tmp_path / "b", is_main_process=False, save_function=torch.save)
    assert not (tmp_path / "b").exists()
    for arguments, message in (
        ({"safe_serialization": False}, "a pickle file could run code"),
        ({"push_to_hub": True}, "upload the folder with huggingface_hub"),
        ({"state_dict": {}}, "state_dict has no bert.embeddings"),
        ({"max_shards": 3}, "save_pretrained has no argument max_shards"),
    ):
        with pytest.raises(ValueError, match=message):
            model.save_pretrained(tmp_path / "c", **arguments)  # type: ignore[arg-type]


def test_arguments_of_the_hub_are_honored(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="local_files_only is set"):
        BertModel.from_pretrained(NAME, local_files_only=True)
    assert not hub.requests
    hub.token = "secret"
    with pytest.raises(OSError, match="set HF_TOKEN"):
        BertModel.from_pretrained(NAME, cache_dir=tmp_path / "other")
    model = BertModel.from_pretrained(NAME, cache_dir=tmp_path / "other", token="secret", revision=COMMIT)
    assert (tmp_path / "other").is_dir()
    assert BertModel.from_pretrained(NAME, cache_dir=tmp_path / "other", revision=COMMIT, local_files_only=True)
    tokenizer = BertTokenizer.from_pretrained(NAME, cache_dir=tmp_path / "other", revision=COMMIT)
    assert len(tokenizer) == model.config.vocab_size
    with pytest.raises(OSError, match="no revision 'v9'"):
        BertConfig.from_pretrained(NAME, revision="v9", token="secret")


class Pooled(BertPreTrainedModel):
    """A model with layers of its own, as users write it for transformers."""

    def __init__(self, config: Any, size: int = 5) -> None:
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.norm = nn.LayerNorm(config.hidden_size)
        self.head = nn.Sequential(nn.Linear(config.hidden_size, size), nn.Tanh(), nn.Linear(size, config.num_labels))
        self.scale = nn.Parameter(torch.full((1,), 3.0))
        self.register_buffer("offset", torch.arange(2.0), persistent=False)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        states = self.bert(input_ids, attention_mask=attention_mask)[0]
        logits: Tensor = self.head(self.norm(states.mean(1))) * self.scale + self.offset
        return logits


def test_a_model_with_its_own_layers_loads_the_body_and_initializes_the_rest(folder: Path) -> None:
    body = BertModel.from_pretrained(folder)
    torch.manual_seed(0)
    model, info = Pooled.from_pretrained(folder, size=6, output_loading_info=True)
    assert isinstance(model, Pooled)
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, body.embeddings.word_embeddings.weight)
    assert info["missing_keys"] == {name for name, _ in model.named_parameters() if not name.startswith("bert.")}
    assert "classifier.weight" in info["unexpected_keys"]
    assert model.head[0].weight.shape == (6, CONFIG.hidden_size)
    assert 0.01 < model.head[0].weight.std() < 0.03  # initializer_range
    assert model.head[0].bias.abs().sum() == 0
    assert torch.equal(model.norm.weight, torch.ones(CONFIG.hidden_size))
    assert (model.scale.item(), model.offset.tolist()) == (3.0, [0.0, 1.0])
    assert not model.training


def test_a_model_with_its_own_layers_survives_a_round_trip(folder: Path, tmp_path: Path) -> None:
    model = Pooled(BertConfig.from_pretrained(folder)).eval()
    nn.init.normal_(model.scale)
    model.save_pretrained(tmp_path / "own")
    back, info = Pooled.from_pretrained(tmp_path / "own", output_loading_info=True)
    assert torch.equal(back(IDS), model(IDS))
    assert (info["missing_keys"], info["unexpected_keys"]) == (set(), set())
    assert back.config.architectures == ["Pooled"]
    theirs = transformers.BertModel.from_pretrained(tmp_path / "own", add_pooling_layer=False)
    torch.testing.assert_close(theirs(IDS)[0], model.bert(IDS)[0], atol=1e-5, rtol=1e-4)


class Constant(Pooled):
    """A model that initializes its layers itself."""

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.constant_(module.weight, 0.5)
        elif isinstance(module, Constant):
            nn.init.constant_(module.scale, 7.0)


def test_a_model_may_initialize_its_new_layers_itself(folder: Path, tmp_path: Path) -> None:
    model = Constant.from_pretrained(folder)
    assert bool((model.head[0].weight == 0.5).all())
    assert model.scale.item() == 7
    query = BertModel.from_pretrained(folder).encoder.layer[0].attention.self.query
    assert torch.equal(model.bert.encoder.layer[0].attention.self.query.weight, query.weight)
    with torch.no_grad():
        model.head[0].weight.fill_(2)
        model.scale.fill_(3)
    model.save_pretrained(tmp_path / "saved")
    again = Constant.from_pretrained(tmp_path / "saved")  # nothing is new
    assert torch.equal(again.head[0].weight, model.head[0].weight)
    assert again.scale.item() == 3
    assert bool((Constant(CONFIG).head[2].weight == 0.5).all())


def test_an_own_initialization_does_not_touch_tied_parameters() -> None:
    class Halves(BertForMaskedLM):
        def _init_weights(self, module: nn.Module) -> None:
            if isinstance(module, nn.Linear):
                nn.init.constant_(module.weight, 0.5)

    model = Halves(CONFIG)
    assert bool((model.cls.predictions.transform.dense.weight == 0.5).all())
    assert not bool((model.get_input_embeddings().weight == 0.5).any())


def test_init_weights_can_be_applied_to_all_modules() -> None:
    model = BertForMaskedLM(CONFIG)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(9)
    model.apply(model._init_weights)
    embeddings = model.get_input_embeddings().weight
    assert 0.015 < float(embeddings[1:].detach().std()) < 0.025
    assert not embeddings[0].any()
    assert bool((model.cls.predictions.transform.LayerNorm.weight == 1).all())
    assert not model.bert.encoder.layer[0].output.dense.bias.any()


def test_a_config_of_transformers_builds_and_loads_models(folder: Path) -> None:
    theirs = transformers.BertConfig.from_pretrained(folder)
    for config in (theirs, CONFIG):
        model = Pooled(config)
        assert isinstance(model.config, BertConfig)
        assert isinstance(model.bert.config, BertConfig)
    loaded = BertForSequenceClassification.from_pretrained(folder, config=theirs)
    assert torch.equal(loaded(IDS).logits, BertForSequenceClassification.from_pretrained(folder)(IDS).logits)
    assert isinstance(BertModel(config=theirs).config, BertConfig)


def test_inputs_that_bert_does_not_use_are_ignored() -> None:
    model = BertModel(CONFIG).eval()
    unused = {"head_mask": None, "past_key_values": None, "num_items_in_batch": 3, "use_cache": True}
    assert torch.equal(model(IDS, **unused, encoder_hidden_states=None)[0], model(IDS)[0])
    with pytest.raises(UsageError, match="head_mask is not supported; load the model with transformers"):
        model(IDS, head_mask=torch.ones(2))
    with pytest.raises(TypeError, match="no_such_input"):
        model(IDS, no_such_input=3)


def test_a_subclass_gets_the_inputs_that_its_forward_takes() -> None:
    class Counted(BertForSequenceClassification):
        def forward(self, input_ids: Tensor, num_items_in_batch: int = 1) -> Any:  # type: ignore[override]
            return super().forward(input_ids).logits / num_items_in_batch

    torch.manual_seed(0)
    model = Counted(CONFIG).eval()
    torch.testing.assert_close(model(IDS, num_items_in_batch=2, use_cache=False) * 2, model(IDS, num_items_in_batch=1))


def test_methods_of_transformers_describe_a_model() -> None:
    model = BertForMaskedLM(CONFIG)
    assert not model.can_generate()
    assert not model.is_gradient_checkpointing
    model.gradient_checkpointing_enable()
    assert model.is_gradient_checkpointing
    model.set_input_embeddings(nn.Embedding(CONFIG.vocab_size, CONFIG.hidden_size))
    assert model.get_output_embeddings().weight is model.bert.embeddings.word_embeddings.weight
    assert model.base_model.get_output_embeddings() is None
    assert model.config.get_text_config() is model.config
    assert model.config.to_diff_dict()["hidden_size"] == CONFIG.hidden_size
    assert "layer_norm_eps" not in model.config.to_diff_dict()


def test_tied_parameters_in_a_state_dict_do_not_share_memory() -> None:
    model = BertForMaskedLM(CONFIG)
    state = model.state_dict()
    assert len({value.data_ptr() for value in state.values()}) == len(state)
    assert torch.equal(state["cls.predictions.decoder.weight"], state["bert.embeddings.word_embeddings.weight"])
    assert set(state) == set(transformers.BertForMaskedLM(transformers.BertConfig(**SMALL)).state_dict())
    other = BertForMaskedLM(CONFIG)
    other.load_state_dict(state)
    assert other.cls.predictions.decoder.weight is other.bert.embeddings.word_embeddings.weight
    assert torch.equal(other.cls.predictions.bias, model.cls.predictions.bias)
