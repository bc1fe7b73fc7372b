"""The shared assertion that a model matches Hugging Face's, and the models, inputs and labels for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import bertmill
from bertmill import BertConfig

CLASSES = (
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForNextSentencePrediction",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
    "BertForMultipleChoice",
)
SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
}
LENGTHS = (13, 4, 9, 1, 13, 6)


def twins(name: str, config: BertConfig | None = None, seed: int = 0) -> tuple[nn.Module, nn.Module]:
    """Return (ours, theirs) of one class with the same random weights, including biases and LayerNorms."""
    config = BertConfig(**SMALL) if config is None else config
    torch.manual_seed(seed)
    theirs = getattr(transformers, name)(transformers.BertConfig(**their_settings(config)))
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    ours = getattr(bertmill, name)(config)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    return ours.eval(), theirs.eval()


def their_settings(config: BertConfig) -> dict[str, Any]:
    settings = config.to_dict()
    del settings["model_type"]
    return settings


def padded_inputs(
    vocab_size: int, lengths: tuple[int, ...] = LENGTHS, side: str = "right", pairs: bool = True, seed: int = 0
) -> dict[str, Tensor]:
    """Return padded ids, mask and segments. `side="holes"` masks pieces in the middle, `side="none"` no pieces."""
    generator = torch.Generator().manual_seed(seed)
    B, T = len(lengths), max(lengths)
    columns = torch.arange(T).expand(B, T)
    sizes = torch.tensor(lengths)[:, None]
    mask = {
        "right": columns < sizes,
        "left": columns >= T - sizes,
        "holes": (columns + torch.arange(B)[:, None]) % 3 != 1,
        "none": columns >= 0,
    }[side]
    inputs = {
        "input_ids": torch.randint(1, vocab_size, (B, T), generator=generator) * mask,
        "attention_mask": mask.long(),
    }
    if pairs:
        inputs["token_type_ids"] = (columns > sizes // 2).long() * mask
    return inputs


def targets_for(name: str, inputs: Mapping[str, Tensor], vocab_size: int, num_labels: int = 2) -> dict[str, Tensor]:
    """Return labels for the class `name`. Labels per piece are set for some of the visible pieces."""
    generator = torch.Generator().manual_seed(5)
    B, T = inputs["input_ids"].shape[0], inputs["input_ids"].shape[-1]

    def numbers(high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=generator)

    chosen = (torch.rand(B, T, generator=generator) < 0.4) & inputs["attention_mask"].view(-1, T)[:B].bool()
    if name == "BertForPreTraining":
        return {"labels": numbers(vocab_size, B, T).where(chosen, -100), "next_sentence_label": numbers(2, B)}
    if name == "BertForMaskedLM":
        return {"labels": numbers(vocab_size, B, T).where(chosen, -100)}
    if name == "BertForTokenClassification":
        return {"labels": numbers(num_labels, B, T).where(chosen, -100)}
    if name == "BertForQuestionAnswering":
        return {"start_positions": numbers(T, B), "end_positions": numbers(T, B)}
    if name == "BertModel":
        return {}
    return {"labels": numbers(num_labels, B)}


def assert_equals_hugging_face(
    ours: nn.Module, theirs: nn.Module, inputs: Mapping[str, Tensor], targets: Mapping[str, Tensor]
) -> None:
    """Compare outputs within 1e-5 where the mask is 1, losses within 1e-6, gradients within 1e-5 of the largest."""
    our_output = ours(**inputs, **targets, output_hidden_states=True)
    their_output = theirs(**inputs, **targets, output_hidden_states=True)
    assert list(our_output.keys()) == list(their_output.keys())
    mask = inputs.get("attention_mask", torch.ones(inputs["input_ids"].shape)).bool()
    for name in our_output:
        for mine, other in zip(as_tuple(our_output[name]), as_tuple(their_output[name]), strict=True):
            assert_close_where_seen(name, mine, other, mask.flatten(0, -2))
    if "loss" in our_output:
        assert abs(our_output.loss - their_output.loss) <= 1e-6 * abs(their_output.loss)
    assert_equal_gradients(ours, theirs, scalar_of(our_output, mask), scalar_of(their_output, mask))


def assert_close_where_seen(name: str, mine: Tensor, other: Tensor, mask: Tensor) -> None:
    assert mine.shape == other.shape, name
    if mine.shape[:2] == mask.shape and name != "seq_relationship_logits":
        mine, other = mine[mask], other[mask]
    torch.testing.assert_close(mine, other, atol=1e-5, rtol=0, msg=lambda text: f"{name}: {text}")


def assert_equal_gradients(ours: nn.Module, theirs: nn.Module, our_loss: Tensor, their_loss: Tensor) -> None:
    ours.zero_grad()
    theirs.zero_grad()
    our_loss.backward()
    their_loss.backward()
    others = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        other = others[name].grad
        if other is None:
            assert parameter.grad is None or not parameter.grad.any(), name
        elif name.endswith("key.bias") or (name == "classifier.bias" and "Choice" in type(ours).__name__):
            # Its gradient is zero, because a softmax is invariant to a shift of all its inputs.
            assert parameter.grad.abs().max() < 1e-7, name
            assert other.abs().max() < 1e-7, name
        else:
            # A gradient that nearly cancels (a shift of all choices) leaves rounding errors of 1e-9.
            assert (parameter.grad - other).abs().max() <= max(1e-5 * float(other.abs().max()), 1e-9), name


def scalar_of(output: Any, mask: Tensor) -> Tensor:
    """Return the loss or, for a model without one, a number that depends on all its outputs."""
    if "loss" in output:
        return output.loss
    return output.last_hidden_state[mask].square().mean() + output.pooler_output.sin().mean()


def as_tuple(value: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)
