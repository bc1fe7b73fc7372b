"""An accelerated model can be copied, saved, converted and unwrapped like an untouched one."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import subprocess
import sys
from pathlib import Path
from types import MethodType
from typing import Any

import accelerate.utils
import pytest
import torch
import transformers
from torch import nn

import bertmill
from bertmill.accelerated import forward
from bertmill.errors import UsageError
from tests.accelerated.models import V, counts, inputs_for, pair, untouched
from tests.model.equality import CLASSES


def test_the_signature_and_the_class_are_unchanged() -> None:
    for name in CLASSES:
        fast, theirs = pair(name)
        assert inspect.signature(fast.forward) == inspect.signature(theirs.forward)
        assert type(fast) is type(theirs)
        assert fast.state_dict().keys() == theirs.state_dict().keys()
        assert [*dict(fast.named_modules())] == [*dict(theirs.named_modules())]


def test_a_deep_copy_is_accelerated_on_its_own() -> None:
    fast, _ = pair("BertForSequenceClassification", logits=False)
    fast(**inputs_for(""))
    other = copy.deepcopy(fast)
    assert other.forward.__self__ is other
    with torch.no_grad():
        other.classifier.weight.zero_()
        other.classifier.bias.zero_()
    assert not other(**inputs_for("")).logits.any()
    assert fast(**inputs_for("")).logits.any()
    assert counts(fast) == (2, {})
    assert counts(other) == (1, {})


def test_a_pickled_model_is_a_plain_one_that_can_be_accelerated() -> None:
    fast, _ = pair("BertForSequenceClassification")
    expected = fast(**inputs_for("")).logits
    file = io.BytesIO()
    torch.save(fast, file)
    file.seek(0)
    for plain in (pickle.loads(pickle.dumps(fast)), torch.load(file, weights_only=False)):
        with pytest.raises(UsageError):
            bertmill.acceleration(plain)
        torch.testing.assert_close(plain(**inputs_for("")).logits, expected, atol=2e-5, rtol=0)
        bertmill.accelerate(plain)
        assert torch.equal(plain(**inputs_for("")).logits, expected)
        assert counts(plain) == (1, {})


def test_a_pickled_model_can_be_read_without_bertmill() -> None:
    fast, _ = pair("BertModel")
    fast(**inputs_for(""))
    assert b"bertmill." not in pickle.dumps(fast)


def test_saving_writes_what_the_untouched_model_writes(tmp_path: Path) -> None:
    fast, theirs = pair("BertForMaskedLM")
    fast(**inputs_for(""))
    fast.save_pretrained(tmp_path / "fast")
    theirs.save_pretrained(tmp_path / "theirs")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "fast" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()


@pytest.mark.parametrize("before", [True, False], ids=["before", "after a call"])
@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.half(),
        lambda model: model.double(),
        lambda model: model.bfloat16(),
        lambda model: model.to(torch.float64),
        lambda model: model.load_state_dict({k: v * 1.5 for k, v in model.state_dict().items()}),
        lambda model: model.load_state_dict({k: v * 1.5 for k, v in model.state_dict().items()}, assign=True),
        lambda model: model.resize_token_embeddings(V + 7, mean_resizing=False),
        lambda model: model.resize_token_embeddings(V - 7),
        lambda model: model.set_output_embeddings(nn.Linear(32, V, bias=True).requires_grad_(False)),
        lambda model: model.bert.set_input_embeddings(nn.Embedding(V, 32)),
        lambda model: model.cls.predictions.decoder.register_parameter("weight", nn.Parameter(torch.ones(V, 32))),
        lambda model: model.bert.encoder.layer.pop(1),
    ],
    ids=[
        "half",
        "double",
        "bfloat16",
        "to",
        "load_state_dict",
        "load_state_dict assign",
        "grow",
        "shrink",
        "set_output_embeddings",
        "set_input_embeddings",
        "untie",
        "drop a layer",
    ],
)
def test_changes_of_the_model_apply(change: Any, before: bool) -> None:
    fast, theirs = pair("BertForMaskedLM")
    inputs = inputs_for("")
    inputs["input_ids"] = inputs["input_ids"].clamp(max=V - 8)
    labels = torch.randint(0, V - 7, inputs["input_ids"].shape)
    if not before:
        fast(**inputs)
    for model in (fast, theirs):
        torch.manual_seed(4)
        change(model)
    tolerance = {torch.float16: 2e-2, torch.bfloat16: 0.2}.get(fast.dtype, 2e-5)
    mine, other = fast(**inputs, labels=labels), theirs(**inputs, labels=labels)
    seen = inputs["attention_mask"].bool()
    assert mine.logits.dtype == other.logits.dtype == fast.dtype
    torch.testing.assert_close(mine.logits[seen], other.logits[seen], atol=tolerance, rtol=0)
    torch.testing.assert_close(mine.loss, other.loss, atol=tolerance, rtol=0)
    assert counts(fast) == (1 if before else 2, {})


def test_unwrapping_keeps_the_acceleration() -> None:
    fast, _ = pair("BertForSequenceClassification")
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)  # of a Trainer in another test
    prepared = accelerate.Accelerator(mixed_precision="bf16", cpu=True).prepare_model(fast)
    assert prepared(**inputs_for("")).logits.dtype == torch.float32
    plain = accelerate.utils.extract_model_from_parallel(prepared, keep_fp32_wrapper=False)
    assert plain is fast
    plain(**inputs_for(""))
    assert counts(fast) == (2, {})
    assert transformers.modeling_utils.unwrap_model(fast) is fast


def test_a_forward_that_another_library_wrapped_can_still_be_turned_off() -> None:
    fast, theirs = pair("BertForSequenceClassification")
    inner = fast.forward
    fast.forward = lambda *args, **kwargs: inner(*args, **kwargs)
    report = bertmill.acceleration(fast)
    report.remove()
    assert torch.equal(fast(**inputs_for("")).logits, theirs(**inputs_for("")).logits)
    with pytest.raises(UsageError, match=r"^accelerate: the forward of BertForSequenceClassification was replaced"):
        bertmill.accelerate(fast)


def test_replicas_for_data_parallel_are_plain_models() -> None:
    fast, _ = pair("BertForSequenceClassification")
    replica = fast._replicate_for_data_parallel()
    assert "forward" not in replica.__dict__
    assert isinstance(replica.forward, MethodType)
    assert replica.forward.__self__ is replica
    assert "forward" in fast.__dict__


def test_a_model_in_two_threads_gives_the_same_outputs() -> None:
    from concurrent.futures import ThreadPoolExecutor

    fast, _ = pair("BertForSequenceClassification")
    expected = untouched("BertForSequenceClassification")(**inputs_for("")).logits

    def run(_: int) -> torch.Tensor:
        return fast(**inputs_for("")).logits

    with ThreadPoolExecutor(4) as pool:
        for logits in pool.map(run, range(8)):
            torch.testing.assert_close(logits, expected, atol=2e-5, rtol=0)


def test_importing_bertmill_does_not_import_transformers() -> None:
    code = "import sys, bertmill; bertmill.accelerate, bertmill.acceleration; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_function_as_forward_is_not_overwritten_and_no_model_is_changed() -> None:
    models = nn.ModuleList([untouched("BertModel"), untouched("BertForNextSentencePrediction")])
    own = models[1].forward = lambda *args, **kwargs: None
    forward._forwards.pop(type(models[1]), None)  # as if no model of this class had been accelerated
    with pytest.raises(UsageError, match=r"the forward of BertForNextSentencePrediction was replaced"):
        bertmill.accelerate(models)
    assert models[1].forward is own
    assert "forward" not in models[0].__dict__
