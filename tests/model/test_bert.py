"""Models match Hugging Face's with the same weights, and packed batches match padded ones."""

from __future__ import annotations

import copy
import inspect
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from equality import (
    CLASSES,
    LENGTHS,
    SMALL,
    assert_equal_gradients,
    assert_equals_hugging_face,
    padded_inputs,
    scalar_of,
    targets_for,
    their_settings,
    twins,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.utils import find_labels

import bertmill
from bertmill import BertConfig, BertForMaskedLM, BertForPreTraining, BertModel, PackedBatch
from bertmill.checkpoint.names import find_model
from bertmill.errors import UsageError

V = SMALL["vocab_size"]


def inputs_for(name: str, **how: Any) -> dict[str, Tensor]:
    inputs = padded_inputs(V, **how)
    if name == "BertForMultipleChoice":
        return {key: value.view(-1, 2, value.shape[1]) for key, value in inputs.items()}
    return inputs


@pytest.mark.parametrize("side", ["right", "left", "holes", "none"])
@pytest.mark.parametrize("name", CLASSES)
def test_every_class_matches_hugging_face_wherever_the_padding_is(name: str, side: str) -> None:
    inputs = inputs_for(name, side=side)
    assert_equals_hugging_face(*twins(name), inputs, targets_for(name, inputs, V))


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_matches_hugging_face_on_single_sequences_without_a_mask(name: str) -> None:
    inputs = inputs_for(name, side="none", pairs=False)
    targets = targets_for(name, inputs, V)
    del inputs["attention_mask"]
    assert_equals_hugging_face(*twins(name), inputs, targets)


@pytest.mark.parametrize("name", ["BertForMaskedLM", "BertForTokenClassification"])
def test_labels_at_masked_positions_count_as_in_hugging_face(name: str) -> None:
    inputs = inputs_for(name)
    labels = torch.randint(0, 2, inputs["input_ids"].shape)
    assert_equals_hugging_face(*twins(name), inputs, {"labels": labels})


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "relu"},
        {"hidden_act": "gelu_new"},
        {"type_vocab_size": 1},
        {"layer_norm_eps": 1e-5},
        {"causal": True},
        {"num_hidden_layers": 0},
        {"pad_token_id": None},
        {"num_attention_heads": 1},
    ],
    ids=str,
)
def test_every_setting_has_the_same_effect_as_in_hugging_face(changes: dict[str, Any]) -> None:
    config = BertConfig(**{**SMALL, **changes})
    inputs = inputs_for("BertForMaskedLM", pairs=config.type_vocab_size > 1)
    assert_equals_hugging_face(*twins("BertForMaskedLM", config), inputs, targets_for("BertForMaskedLM", inputs, V))


@pytest.mark.parametrize(
    ("num_labels", "labels"),
    [
        (1, torch.tensor([0.5, -1.0, 2.0, 0.0, 1.0, 3.0])),
        (3, torch.tensor([0, 1, 2, 2, 1, 0])),
        (3, torch.tensor([[1.0, 0.0, 1.0]] * 6)),
    ],
    ids=["number", "class", "set of labels"],
)
def test_sequence_labels_of_each_kind_give_the_loss_of_hugging_face(num_labels: int, labels: Tensor) -> None:
    ours, theirs = twins("BertForSequenceClassification", BertConfig(**SMALL, num_labels=num_labels))
    assert_equals_hugging_face(ours, theirs, padded_inputs(V), {"labels": labels})


@pytest.mark.parametrize("problem_type", ["regression", "multi_label_classification"])
def test_sequence_labels_are_never_reshaped(problem_type: str) -> None:
    model = bertmill.BertForSequenceClassification(BertConfig(**SMALL, num_labels=3, problem_type=problem_type))
    inputs = padded_inputs(SMALL["vocab_size"])  # six sequences
    with pytest.raises(UsageError, match=r"labels have shape \[3, 6\], but the logits have shape \[6, 3\]"):
        model(**inputs, labels=torch.rand(3, 6))


@pytest.mark.parametrize("side", ["left", "holes"])
@pytest.mark.parametrize("name", ["BertForMaskedLM", "BertForTokenClassification"])
def test_causal_models_match_hugging_face_wherever_the_padding_is(name: str, side: str) -> None:
    inputs = inputs_for(name, side=side)
    assert_equals_hugging_face(*twins(name, BertConfig(**SMALL, causal=True)), inputs, targets_for(name, inputs, V))


def test_embeddings_and_positions_can_be_passed_as_in_hugging_face() -> None:
    ours, theirs = twins("BertModel")
    inputs = padded_inputs(V)
    positions = torch.arange(20, 20 + inputs["input_ids"].shape[1])[None]
    vectors = torch.randn(*inputs.pop("input_ids").shape, SMALL["hidden_size"])
    mine = ours(inputs_embeds=vectors, position_ids=positions, **inputs)
    other = theirs(inputs_embeds=vectors, position_ids=positions, **inputs)
    mask = inputs["attention_mask"].bool()
    torch.testing.assert_close(mine.last_hidden_state[mask], other.last_hidden_state[mask], atol=1e-5, rtol=0)


@pytest.mark.parametrize("side", ["right", "left", "holes"])
def test_attention_weights_match_hugging_face(side: str) -> None:
    ours, theirs = twins("BertModel")
    theirs.set_attn_implementation("eager")
    inputs = padded_inputs(V, side=side)
    mine, other = (model(**inputs, output_attentions=True).attentions for model in (ours, theirs))
    mask = inputs["attention_mask"].bool()
    for of_layer, of_their_layer in zip(mine, other, strict=True):
        seen = mask[:, None, :, None].expand(of_layer.shape)
        torch.testing.assert_close(of_layer[seen], of_their_layer[seen], atol=1e-5, rtol=0)


# The first three cover the encoder, the pooler and every kind of head. Small models of all classes are compared above.
@pytest.mark.parametrize(
    "name",
    [
        "BertForPreTraining",
        "BertForSequenceClassification",
        "BertForQuestionAnswering",
        pytest.param("BertModel", marks=pytest.mark.slow),
        pytest.param("BertForMaskedLM", marks=pytest.mark.slow),
        pytest.param("BertForNextSentencePrediction", marks=pytest.mark.slow),
        pytest.param("BertForTokenClassification", marks=pytest.mark.slow),
        pytest.param("BertForMultipleChoice", marks=pytest.mark.slow),
    ],
)
def test_pretrained_weights_give_the_outputs_of_hugging_face(name: str) -> None:
    torch.manual_seed(0)
    theirs = getattr(transformers, name).from_pretrained(find_model("minilm")).eval()
    ours = getattr(bertmill, name).from_pretrained("minilm")
    ours.load_state_dict(theirs.state_dict())  # including their random head
    # Enough pieces for queries, keys and values to be computed in one product.
    inputs = padded_inputs(30522, lengths=(64, 5, 33, 17, 130, 150))
    if name == "BertForMultipleChoice":
        inputs = {key: value.view(-1, 2, value.shape[1]) for key, value in inputs.items()}
    assert_equals_hugging_face(ours, theirs, inputs, targets_for(name, inputs, 30522))


def test_pretrained_weights_give_hugging_faces_vectors_in_a_small_batch() -> None:
    theirs = transformers.BertModel.from_pretrained(find_model("minilm")).eval()
    for side in ("right", "left"):  # so few pieces that queries, keys and values take three products
        inputs = padded_inputs(30522, lengths=(64, 5, 33, 17), side=side)
        assert_equals_hugging_face(BertModel.from_pretrained("minilm"), theirs, inputs, {})


@pytest.mark.parametrize(
    "size",
    ["tiny", "mini", pytest.param("small", marks=pytest.mark.slow), pytest.param("base", marks=pytest.mark.slow)],
)
def test_random_models_of_every_size_match_hugging_face_and_start_at_the_expected_loss(size: str) -> None:
    torch.manual_seed(0)
    ours = BertForPreTraining(BertConfig.of_size(size)).eval()
    theirs = transformers.BertForPreTraining(transformers.BertConfig(**their_settings(ours.config))).eval()
    theirs.load_state_dict(ours.state_dict())
    # Enough pieces for queries, keys and values to be computed in one product.
    lengths = (60, 12, 41, 60, 33, 25, 58, 9) * (3 if size in ("small", "base") else 1)
    inputs = padded_inputs(30522, lengths=lengths)
    targets = targets_for("BertForPreTraining", inputs, 30522)
    # Balanced labels: a new model predicts nearly the same for every pair, so their balance affects the loss.
    targets["next_sentence_label"] = torch.arange(len(lengths)) % 2
    # The first loss is a mean over random pieces. With a label on each, its noise is well below the tolerance.
    every_piece = torch.randint(0, 30522, inputs["input_ids"].shape).where(inputs["attention_mask"].bool(), -100)
    output = ours(**inputs, **{**targets, "labels": every_piece})
    assert abs(output.mlm_loss - (math.log(30522) + 0.0002 * ours.config.hidden_size)) < 0.05
    assert abs(output.nsp_loss - math.log(2)) < 0.05
    assert_equals_hugging_face(ours, theirs, inputs, targets)


def test_mlm_models_have_neither_a_pooler_nor_a_next_sentence_head() -> None:
    names = list(BertForMaskedLM(BertConfig(**SMALL)).state_dict())
    assert not [name for name in names if "pooler" in name or "seq_relationship" in name]


def packed(inputs: dict[str, Tensor]) -> PackedBatch:
    mask = inputs["attention_mask"].bool()
    return PackedBatch(
        inputs["input_ids"][mask],
        mask.sum(1).tolist(),
        inputs["token_type_ids"][mask],
        inputs["input_ids"].new_tensor([column for row in mask for column in row.nonzero().flatten().tolist()]),
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=9), st.booleans(), st.integers(0, 99))
def test_packed_padded_and_single_sequences_give_the_same_outputs(lengths: list[int], causal: bool, seed: int) -> None:
    torch.manual_seed(0)
    model = BertModel(BertConfig(**SMALL, causal=causal)).eval()
    inputs = padded_inputs(V, lengths=tuple(lengths), seed=seed)
    mask = inputs["attention_mask"].bool()
    with torch.no_grad():
        flat = model(packed(inputs))
        padded = model(**inputs)
        alone = [
            model(input_ids=ids[:n][None], token_type_ids=segments[:n][None])
            for ids, segments, n in zip(inputs["input_ids"], inputs["token_type_ids"], lengths, strict=True)
        ]
    torch.testing.assert_close(flat.last_hidden_state, padded.last_hidden_state[mask], atol=1e-5, rtol=0)
    together = torch.cat([one.last_hidden_state[0] for one in alone])
    torch.testing.assert_close(flat.last_hidden_state, together, atol=1e-5, rtol=0)
    torch.testing.assert_close(flat.pooler_output, padded.pooler_output, atol=1e-5, rtol=0)
    torch.testing.assert_close(flat.pooler_output, torch.cat([one.pooler_output for one in alone]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", [name for name in CLASSES if name not in ("BertModel", "BertForQuestionAnswering")])
def test_packed_losses_and_gradients_match_padded_ones(name: str) -> None:
    ours, _ = twins(name)
    other, _ = twins(name)
    inputs = padded_inputs(V)
    shaped = inputs_for(name)
    targets = targets_for(name, shaped, V)
    mask = inputs["attention_mask"].bool()
    flat_targets = {key: value[mask] if value.shape == mask.shape else value for key, value in targets.items()}
    choices = {"num_choices": 2} if name == "BertForMultipleChoice" else {}
    mine = ours(packed(inputs), **flat_targets, **choices)
    assert_equal_gradients(ours, other, mine.loss, other(**shaped, **targets).loss)


def test_a_packed_span_is_chosen_among_the_pieces_of_its_sequence() -> None:
    ours, _ = twins("BertForQuestionAnswering")
    inputs = padded_inputs(V)
    positions = {"start_positions": torch.tensor(LENGTHS) - 1, "end_positions": torch.zeros(len(LENGTHS), dtype=int)}
    together = ours(packed(inputs), **positions)
    alone = []
    for row, length in enumerate(LENGTHS):
        one = {key: value[row : row + 1, :length] for key, value in inputs.items()}
        alone.append(ours(**one, **{key: value[row : row + 1] for key, value in positions.items()}).loss)
    torch.testing.assert_close(together.loss, torch.stack(alone).mean(), atol=1e-5, rtol=0)
    padded = ours(**inputs)
    assert (padded.start_logits[inputs["attention_mask"] == 0] < -10_000).all()


def test_changing_one_sequence_leaves_the_others_bit_identical() -> None:
    torch.manual_seed(0)
    model = BertModel(BertConfig.of_size("tiny")).eval()
    lengths = [31, 128, 7, 90, 128, 64]
    ids = torch.randint(1, 30522, (sum(lengths),))
    changed = ids.clone()
    start = sum(lengths[:3])
    changed[start : start + lengths[3]] = torch.randint(1, 30522, (lengths[3],))
    with torch.no_grad():
        before = model(PackedBatch(ids, lengths)).last_hidden_state.split(lengths)
        after = model(PackedBatch(changed, lengths)).last_hidden_state.split(lengths)
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        assert torch.equal(old, new) == (number != 3)


def test_outputs_can_be_read_as_attributes_keys_indices_and_tuples() -> None:
    ours, _ = twins("BertForPreTraining")
    inputs = padded_inputs(V)
    targets = targets_for("BertForPreTraining", inputs, V)
    output = ours(**inputs, **targets)
    assert output["loss"] is output.loss is output[0]
    assert output[1:] == (output.prediction_logits, output.seq_relationship_logits)
    assert list(output) == ["loss", "prediction_logits", "seq_relationship_logits"]
    assert output.hidden_states is None
    assert "hidden_states" not in output
    loss, logits, relationship = ours(**inputs, **targets, return_dict=False)
    assert torch.equal(loss, output.loss)
    assert logits.shape == (*inputs["input_ids"].shape, V)
    assert relationship.shape == (len(LENGTHS), 2)


@pytest.mark.parametrize("name", CLASSES)
def test_a_training_step_runs_the_last_layer_only_where_it_is_read_and_matches_hugging_face(name: str) -> None:
    inputs = inputs_for(name)
    targets = targets_for(name, inputs, V)
    config = BertConfig(**SMALL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    ours, theirs = (model.train() for model in twins(name, config))
    rows: list[int] = []
    last = ours.base_model.encoder.layer[-1].intermediate.dense
    last.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    our_output, their_output = (model(**inputs, **targets) for model in (ours, theirs))
    mask = inputs["attention_mask"].bool()
    losses = [scalar_of(output, mask) for output in (our_output, their_output)]
    assert abs(losses[0] - losses[1]) <= 1e-6 * abs(losses[1])
    assert_equal_gradients(ours, theirs, *losses)
    reads_all = name in ("BertModel", "BertForTokenClassification", "BertForQuestionAnswering")
    assert (rows[0] >= int(mask.sum())) if reads_all else (rows[0] < int(mask.sum()))


def test_a_training_step_computes_no_logits_unless_requested() -> None:
    ours, _ = twins("BertForMaskedLM")
    inputs = padded_inputs(V)
    targets = targets_for("BertForMaskedLM", inputs, V)
    ours.train()
    assert ours(**inputs, **targets).logits is None
    assert ours(**inputs, **targets, output_logits=True).logits is not None
    assert ours(**inputs).logits is not None
    assert ours.eval()(**inputs, **targets).logits is not None


def test_a_batch_without_selected_pieces_has_a_nan_loss_and_no_gradient() -> None:
    """The loss is NaN, as in Hugging Face, also with dropout. Other trainers may create such batches."""
    model = BertForMaskedLM(BertConfig(**SMALL)).train()
    loss = model(torch.ones(2, 5, dtype=torch.int64), labels=torch.full((2, 5), -100)).loss
    assert loss.isnan()
    loss.backward()
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)


def test_a_module_that_replaces_query_or_value_is_called() -> None:
    ours, _ = twins("BertModel")
    inputs = padded_inputs(V, lengths=(40, 40), side="none")
    before = ours(**inputs).last_hidden_state

    class Doubling(torch.nn.Linear):
        def forward(self, states: Tensor) -> Tensor:
            return 2 * super().forward(states)

    attention = ours.encoder.layer[0].attention.self
    replacement = Doubling(SMALL["hidden_size"], SMALL["hidden_size"])
    replacement.load_state_dict(attention.query.state_dict())
    attention.query = replacement
    assert not torch.allclose(before, ours(**inputs).last_hidden_state)


def test_a_wrapped_decoder_is_called_for_the_loss_too() -> None:
    class Wrapped(torch.nn.Module):
        def __init__(self, base: torch.nn.Linear) -> None:
            super().__init__()
            self.base = base
            self.more = torch.nn.Linear(base.in_features, base.out_features)
            self.weight, self.bias = base.weight, base.bias

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            return self.base(states) + self.more(states)

    model = bertmill.BertForMaskedLM(bertmill.BertConfig.of_size("tiny", vocab_size=100)).eval()
    model.cls.predictions.decoder = Wrapped(model.cls.predictions.decoder)
    ids = torch.randint(5, 100, (2, 9))
    output = model(ids, labels=ids)
    expected = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), ids.flatten())
    assert torch.allclose(output.loss, expected, rtol=1e-6)
    output.loss.backward()
    assert model.cls.predictions.decoder.more.weight.grad is not None


@pytest.mark.parametrize("shape", [(1, 8), (8, 40)])
def test_a_replaced_forward_a_hook_and_a_missing_bias_take_effect_in_any_batch(shape: tuple[int, int]) -> None:
    config = bertmill.BertConfig.of_size("tiny", vocab_size=100)
    model = bertmill.BertModel(config).eval()
    ids = torch.randint(5, 100, shape)
    attention = model.encoder.layer[0].attention.self
    before = model(ids).last_hidden_state
    seen = []
    handle = attention.key.register_forward_hook(lambda *_: seen.append(1))
    assert torch.allclose(model(ids).last_hidden_state, before, atol=1e-5)
    assert seen == [1]
    handle.remove()
    attention.value.forward = torch.zeros_like
    assert not torch.allclose(model(ids).last_hidden_state, before, atol=1e-5)
    del attention.value.forward
    attention.query.bias = None
    assert torch.allclose(model(ids).last_hidden_state, before, atol=1e-5)  # a new bias is zero


def test_a_span_position_beyond_its_sequence_is_ignored_even_next_to_longer_sequences() -> None:
    model = bertmill.BertForQuestionAnswering(bertmill.BertConfig.of_size("tiny", vocab_size=100)).eval()
    short, long = torch.randint(5, 100, (5,)), torch.randint(5, 100, (12,))
    beyond = {"start_positions": torch.tensor([6, 1]), "end_positions": torch.tensor([2, 3])}
    together = model(bertmill.PackedBatch(torch.cat([short, long]), [5, 12]), **beyond).loss
    ends = model(bertmill.PackedBatch(short, [5]), None, None, None, None, torch.tensor([1]), torch.tensor([2]))
    alone = model(bertmill.PackedBatch(long, [12]), start_positions=torch.tensor([1]), end_positions=torch.tensor([3]))
    start_of_long = torch.nn.functional.cross_entropy(alone.start_logits[None], torch.tensor([1]))
    both_ends = [
        torch.nn.functional.cross_entropy(output.end_logits[None], torch.tensor([place]))
        for output, place in ((ends, 2), (alone, 3))
    ]
    assert torch.allclose(together, (start_of_long + torch.stack(both_ends).mean()) / 2, atol=1e-5)


def test_a_second_derivative_is_rejected() -> None:
    model = bertmill.BertForMaskedLM(bertmill.BertConfig.of_size("tiny", vocab_size=100)).eval()
    vectors = torch.randn(1, 4, 128, requires_grad=True)
    loss = model(inputs_embeds=vectors, labels=torch.tensor([[7, 8, 9, 10]]), output_attentions=True).loss
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, vectors, create_graph=True)


HEAD_ARGUMENTS = {
    "BertModel": [],
    "BertForPreTraining": ["labels", "next_sentence_label"],
    "BertForQuestionAnswering": ["start_positions", "end_positions"],
}


@pytest.mark.parametrize("name", CLASSES)
def test_signatures_are_those_of_hugging_face(name: str) -> None:
    ours, theirs = getattr(bertmill, name), getattr(transformers, name)
    inputs = ["input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds"]
    options = ["output_attentions", "output_hidden_states", "return_dict"]
    names = list(inspect.signature(ours.forward).parameters)
    expected = ["self", *inputs, *HEAD_ARGUMENTS.get(name, ["labels"]), *options]
    assert names[: len(expected)] == expected
    assert find_labels(ours) == find_labels(theirs)


def test_unknown_and_excess_arguments_raise_type_errors() -> None:
    model = BertModel(BertConfig(**SMALL))
    ids = torch.ones(1, 4, dtype=int)
    with pytest.raises(TypeError, match="labels"):
        model(ids, labels=ids)
    with pytest.raises(TypeError, match="positional arguments"):
        model(*[None] * 9)


@pytest.mark.parametrize(
    ("name", "checkpointing"),
    [
        ("BertForSequenceClassification", {}),
        ("BertForQuestionAnswering", {}),
        ("BertForSequenceClassification", {"gradient_checkpointing": True}),
        (
            "BertForSequenceClassification",
            {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
        ),
    ],
)
def test_hugging_faces_trainer_trains_our_models(name: str, checkpointing: dict[str, Any], tmp_path: Path) -> None:
    model, _ = twins(name)
    inputs = padded_inputs(V)
    columns = {**inputs, **targets_for(name, inputs, V), "not_an_argument": torch.zeros(len(LENGTHS))}
    rows = [{key: value[row] for key, value in columns.items()} for row in range(len(LENGTHS))]
    before = copy.deepcopy(model.state_dict())
    settings = transformers.TrainingArguments(
        tmp_path,
        max_steps=2,
        per_device_train_batch_size=3,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        **checkpointing,
    )
    trainer = transformers.Trainer(model, settings, train_dataset=rows, eval_dataset=rows)
    assert trainer.train().global_step == 2
    assert any(getattr(module, "gradient_checkpointing", False) for module in model.modules()) == bool(checkpointing)
    assert trainer.evaluate()["eval_loss"] > 0
    assert sum(not torch.equal(value, before[key]) for key, value in model.state_dict().items()) > 30


@pytest.mark.parametrize("name", CLASSES)
def test_a_row_without_visible_pieces_gives_finite_outputs_and_does_not_affect_others(name: str) -> None:
    ours, _ = twins(name)
    inputs = inputs_for(name)
    targets = targets_for(name, inputs, V)
    before = ours(**inputs, **targets)
    inputs["attention_mask"].view(len(LENGTHS), -1)[0] = 0
    after = ours(**inputs, **targets)
    for key, value in after.items():
        assert torch.isfinite(value).all(), key
        if value.ndim and value.shape[0] == len(LENGTHS):
            torch.testing.assert_close(value[1:], before[key][1:], atol=1e-5, rtol=0)


@pytest.mark.parametrize("labels", [torch.tensor([4.733]), torch.tensor([4733])], ids=["float", "integer"])
def test_autocast_does_not_round_the_labels_of_a_regression(labels: Tensor) -> None:
    ours, theirs = twins("BertForSequenceClassification", BertConfig(**SMALL, num_labels=1))
    ids = torch.tensor([[2, 5, 3]])
    with torch.autocast("cpu", torch.bfloat16):
        output, other = ours(ids, labels=labels), theirs(ids, labels=labels)
    assert output.loss.dtype == other.loss.dtype == torch.float32
    expected = (output.logits.float().squeeze() - labels.float()).square().mean()
    torch.testing.assert_close(output.loss, expected, rtol=1e-6, atol=0)
