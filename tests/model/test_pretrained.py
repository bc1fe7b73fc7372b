"""What all models share: modules of other models, parameter counts, resized vocabularies, optional parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from equality import CLASSES, SMALL, assert_equals_hugging_face, padded_inputs, targets_for, their_settings, twins
from torch import Tensor, nn

import bertmill
from bertmill import BertConfig, BertForPreTraining, BertForSequenceClassification, BertModel
from bertmill.errors import UsageError

V = SMALL["vocab_size"]


class LowRank(nn.Module):
    """A Linear with a trainable low-rank addition, as in LoRA."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        return self.base(states) + self.up(self.down(states))


def around(theirs: nn.Module) -> nn.Module:
    """Return our model of the same class, built around the modules of `theirs`."""
    return getattr(bertmill, type(theirs).__name__).from_modules(BertConfig(**SMALL), dict(theirs.named_modules()))


@pytest.mark.parametrize("name", CLASSES)
def test_a_model_around_modules_of_hugging_face_shares_their_parameters_and_gives_their_outputs(name: str) -> None:
    _, theirs = twins(name)
    _, twin = twins(name)
    ours = around(theirs)
    shared = dict(theirs.named_parameters())
    assert dict(ours.named_parameters()).keys() == shared.keys()
    assert all(parameter is shared[key] for key, parameter in ours.named_parameters())
    assert not ours.training
    inputs = padded_inputs(V)
    if name == "BertForMultipleChoice":
        inputs = {key: value.view(-1, 2, value.shape[1]) for key, value in inputs.items()}
    assert_equals_hugging_face(ours, twin, inputs, targets_for(name, inputs, V))


def test_training_a_model_around_modules_changes_those_modules() -> None:
    _, theirs = twins("BertForSequenceClassification")
    before = {key: value.clone() for key, value in theirs.state_dict().items()}
    ours = around(theirs.train())
    assert ours.training
    inputs = padded_inputs(V)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    ours(**inputs, labels=torch.tensor([0, 1, 0, 1, 0, 1])).loss.backward()
    optimizer.step()
    changed = [key for key, value in theirs.state_dict().items() if not torch.equal(value, before[key])]
    assert {"bert.embeddings.word_embeddings.weight", "bert.encoder.layer.1.output.dense.weight"} <= {*changed}


@pytest.mark.parametrize("lengths", [(5, 3), (40, 40)], ids=["three products", "one product"])
def test_a_module_that_replaces_a_linear_is_called_and_trained(lengths: tuple[int, ...]) -> None:
    _, theirs = twins("BertForSequenceClassification")
    theirs.requires_grad_(False)
    for layer in theirs.bert.encoder.layer:
        layer.attention.self.query = LowRank(layer.attention.self.query)
        layer.output.dense = LowRank(layer.output.dense)
    ours = around(theirs)
    inputs = padded_inputs(V, lengths=lengths)
    torch.testing.assert_close(ours(**inputs).logits, theirs(**inputs).logits, atol=1e-5, rtol=0)
    ours(**inputs, labels=torch.tensor([0, 1])).loss.backward()
    trained = [name for name, parameter in theirs.named_parameters() if parameter.grad is not None]
    assert len(trained) == 8
    assert all(".up." in name or ".down." in name for name in trained)


def test_changes_to_the_other_model_apply_to_ours() -> None:
    _, theirs = twins("BertForMaskedLM")
    ours = around(theirs)
    theirs.double()
    assert ours.dtype == torch.float64
    assert ours(**padded_inputs(V)).logits.dtype == torch.float64
    decoder = ours.cls.predictions.decoder
    assert decoder.weight is theirs.bert.embeddings.word_embeddings.weight
    assert ours.cls.predictions.bias is decoder.bias


def test_an_untied_decoder_stays_untied() -> None:
    _, theirs = twins("BertForMaskedLM")
    theirs.cls.predictions.decoder.weight = nn.Parameter(torch.randn(V, SMALL["hidden_size"]))
    ours = around(theirs)
    inputs = padded_inputs(V, side="none")
    torch.testing.assert_close(ours(**inputs).logits, theirs(**inputs).logits, atol=1e-5, rtol=0)


def test_a_module_that_replaces_the_decoder_is_called() -> None:
    _, theirs = twins("BertForPreTraining")
    theirs.cls.predictions.decoder = LowRank(theirs.cls.predictions.decoder)
    ours = around(theirs)
    inputs = padded_inputs(V)
    targets = targets_for("BertForPreTraining", inputs, V)
    assert abs(ours(**inputs, **targets).loss - theirs(**inputs, **targets).loss) < 1e-5


def test_one_error_names_all_missing_modules() -> None:
    modules = dict(transformers.BertModel(transformers.BertConfig(**SMALL)).named_modules())
    with pytest.raises(UsageError, match=r"modules .* are missing: bert\.embeddings.*, classifier$"):
        BertForSequenceClassification.from_modules(BertConfig(**SMALL), modules)
    without = {name: module for name, module in modules.items() if not name.startswith("pooler")}
    with pytest.raises(UsageError, match=r"modules that BertModel needs are missing: pooler\.dense$"):
        BertModel.from_modules(BertConfig(**SMALL), without)
    assert BertModel.from_modules(BertConfig(**SMALL), without, add_pooling_layer=False).pooler is None


@pytest.mark.parametrize(
    ("size", "with_pooler", "with_heads"),
    [
        ("tiny", 4_385_920, None),
        ("mini", 11_170_560, None),
        ("small", 28_763_648, None),
        ("medium", 41_373_184, None),
        ("base", 109_482_240, 110_106_428),
        ("large", 335_141_888, 336_226_108),
    ],
)
def test_parameter_counts_are_those_of_the_paper(size: str, with_pooler: int, with_heads: int | None) -> None:
    config = BertConfig.of_size(size)
    with torch.device("meta"):
        assert BertModel(config).num_parameters() == with_pooler
        theirs = transformers.BertModel(transformers.BertConfig(**their_settings(config)))
        without = BertModel(config).num_parameters(exclude_embeddings=True)
        assert without == theirs.num_parameters(exclude_embeddings=True)
        if with_heads is not None:
            assert BertForPreTraining(config).num_parameters() == with_heads


@pytest.mark.parametrize("option", [{"every_n_layers": 2}, {"offload": True}])
def test_unsupported_gradient_checkpointing_is_rejected(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="supports only every_n_layers=1 and offload=False"):
        BertModel(BertConfig(**SMALL)).gradient_checkpointing_enable(**option)


@pytest.mark.parametrize("name", ["BertModel", "BertForPreTraining", "BertForMaskedLM"])
@pytest.mark.parametrize("size", [V + 9, V - 9])
def test_resizing_the_vocabulary_keeps_existing_rows(name: str, size: int, tmp_path: Path) -> None:
    ours, theirs = twins(name)
    before = ours.get_input_embeddings().weight.detach().clone()
    assert ours.resize_token_embeddings(size) is ours.get_input_embeddings()
    theirs.resize_token_embeddings(size, mean_resizing=False)
    kept = min(V, size)
    assert torch.equal(ours.get_input_embeddings().weight[:kept], before[:kept])
    assert size < V or ours.get_input_embeddings().weight[kept:].std() > 0.01
    theirs.load_state_dict(ours.state_dict())
    inputs = padded_inputs(size)
    assert_equals_hugging_face(ours, theirs, inputs, targets_for(name, inputs, size))
    ours.save_pretrained(tmp_path / "resized")
    again = type(ours).from_pretrained(tmp_path / "resized")
    assert all(map(torch.equal, again.parameters(), ours.parameters()))
    assert again.config.vocab_size == size


@pytest.mark.parametrize("name", ["BertModel", "BertForMaskedLM"])
def test_resizing_takes_the_arguments_of_hugging_face(name: str) -> None:
    ours, theirs = twins(name)
    assert ours.resize_token_embeddings() is ours.get_input_embeddings()
    assert ours.resize_token_embeddings(None) is ours.get_input_embeddings()
    assert ours.config.vocab_size == V
    arguments: tuple[dict[str, Any], ...] = (
        {"new_num_tokens": V + 1, "pad_to_multiple_of": 8, "mean_resizing": False},
        {"pad_to_multiple_of": 64},
        {"new_num_tokens": 128, "mean_resizing": True},
    )
    for each in arguments:
        expected = theirs.resize_token_embeddings(**each).weight.shape
        assert ours.resize_token_embeddings(**each).weight.shape == expected
        assert ours.config.vocab_size == theirs.config.vocab_size
    with pytest.raises(UsageError, match="pad_to_multiple_of must be a positive integer, not 0"):
        ours.resize_token_embeddings(V, pad_to_multiple_of=0)


def test_the_pooler_takes_padded_states_as_in_hugging_face() -> None:
    ours, theirs = twins("BertModel")
    states = torch.randn(3, 7, SMALL["hidden_size"])
    torch.testing.assert_close(ours.pooler(states), theirs.pooler(states))
    torch.testing.assert_close(ours.pooler(states[:, 0]), theirs.pooler(states))


def test_an_empty_vocabulary_is_rejected() -> None:
    with pytest.raises(UsageError, match="vocab_size is 0"):
        BertModel(BertConfig(**SMALL)).resize_token_embeddings(0)


def test_a_model_can_be_loaded_without_its_pooler(tmp_path: Path) -> None:
    whole = BertModel(BertConfig(**SMALL)).eval()
    whole.save_pretrained(tmp_path / "model")
    model = BertModel.from_pretrained(tmp_path / "model", add_pooling_layer=False)
    assert model.pooler is None
    assert "pooler.dense.weight" in model.load_report.ignored
    ids = torch.arange(1, 9)[None]
    assert torch.equal(model(ids).last_hidden_state, whole(ids).last_hidden_state)
    assert "pooler_output" not in model(ids)
