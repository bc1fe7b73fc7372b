"""Outputs are mappings and pytrees, and gradients reach hidden states, as in transformers."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from accelerate.utils.operations import convert_to_fp32
from equality import SMALL, padded_inputs, twins
from torch.utils import _pytree as pytree

from bertmill import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel, PackedBatch

CONFIG = BertConfig(**SMALL)
IDS = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
MASK = (IDS != 0).long()


def test_an_output_is_a_mapping_and_a_sequence() -> None:
    model = BertForSequenceClassification(CONFIG).eval()
    output = model(IDS, labels=torch.tensor([0, 1]), output_hidden_states=True)
    assert list(output.keys()) == ["loss", "logits", "hidden_states"]
    assert dict(**output)["logits"] is output.logits is output["logits"] is output[1]
    assert output[:2] == (output.loss, output.logits)
    loss, logits, hidden_states = output.to_tuple()
    assert (loss is output.loss, logits is output.logits, hidden_states is output.hidden_states) == (True, True, True)
    with pytest.raises(KeyError):
        output["attentions"]


def test_an_output_is_a_pytree() -> None:
    output = BertForMaskedLM(CONFIG).eval()(IDS, labels=IDS, output_hidden_states=True)
    leaves, structure = pytree.tree_flatten(output)
    assert len(leaves) == 3 + len(output.hidden_states)  # loss, logits, number of correct predictions
    back = pytree.tree_unflatten(leaves, structure)
    assert type(back) is type(output)
    assert list(back) == list(output)
    assert back.logits is output.logits
    doubled = pytree.tree_map(lambda tensor: 2 * tensor, output)
    assert torch.equal(doubled.hidden_states[1], 2 * output.hidden_states[1])
    assert pytree.treespec_loads(pytree.treespec_dumps(structure)) == structure


def test_an_output_can_be_copied_and_converted() -> None:
    with torch.no_grad():
        output = BertModel(CONFIG).eval().to(torch.bfloat16)(IDS)
    converted = convert_to_fp32(output)
    assert type(converted) is type(output)
    assert converted.last_hidden_state.dtype == converted.pooler_output.dtype == torch.float32
    for each in (pickle.loads(pickle.dumps(output)), copy.deepcopy(output.__class__(dict(output)))):
        assert torch.equal(each.pooler_output, output.pooler_output)


def test_gradients_reach_every_hidden_state_as_in_transformers() -> None:
    ours, theirs = twins("BertModel")
    inputs = padded_inputs(SMALL["vocab_size"])
    visible = inputs["attention_mask"].bool()
    gradients = []
    for model in (ours, theirs):
        output = model(**inputs, output_hidden_states=True)
        for state in output.hidden_states:
            state.retain_grad()
        output.last_hidden_state[:, 0].square().sum().backward()
        gradients.append([state.grad[visible] for state in output.hidden_states])
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)


def test_hidden_states_of_a_packed_batch_get_gradients_too() -> None:
    model = BertModel(CONFIG).eval()
    batch = PackedBatch(torch.tensor([5, 6, 7, 8, 9]), [3, 2])
    output = model(batch, output_hidden_states=True)
    output.hidden_states[0].retain_grad()
    output.last_hidden_state[0].square().sum().backward()
    assert output.hidden_states[0].shape == (5, CONFIG.hidden_size)
    assert output.hidden_states[0].grad[:3].abs().sum() > 0
    assert output.hidden_states[0].grad[3:].abs().sum() == 0


def test_asking_for_hidden_states_changes_no_output() -> None:
    model = BertModel(CONFIG).eval()
    asked, plain = model(IDS, MASK, output_hidden_states=True), model(IDS, MASK)
    assert torch.equal(asked.last_hidden_state, plain.last_hidden_state)
    assert torch.equal(asked.hidden_states[-1], plain.last_hidden_state)
