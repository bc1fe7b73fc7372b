"""`transformers.Trainer` trains accelerated models as it trains untouched ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import bertmill
from tests.accelerated.models import V, counts, inputs_for, pair, untouched
from tests.model.equality import targets_for

STEPS = 4


def rows_for(name: str) -> list[dict[str, Tensor]]:
    inputs = inputs_for(name)
    columns = {**inputs, **targets_for(name, inputs, V)}
    return [{key: value[row] for key, value in columns.items()} for row in range(len(inputs["input_ids"]))]


def trainer_for(model: Any, folder: Path, **settings: Any) -> transformers.Trainer:
    arguments = transformers.TrainingArguments(
        folder,
        **{
            "max_steps": STEPS,
            "per_device_train_batch_size": 3,
            "learning_rate": 0.05,
            "optim": "sgd",  # other optimizers amplify the rounding errors of gradients that are nearly 0
            "logging_steps": 1,
            "report_to": [],
            "save_strategy": "no",
            "use_cpu": True,
            **settings,
        },
    )
    rows = rows_for(type(model).__name__)
    return transformers.Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)


def losses(trainer: transformers.Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize(
    "name",
    [
        "BertForSequenceClassification",
        pytest.param("BertForMaskedLM", marks=pytest.mark.slow),
        pytest.param("BertForTokenClassification", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        ({}, 1e-5),
        ({"bf16": True}, 0.02),
        ({"gradient_checkpointing": True}, 1e-5),
        ({"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}}, 1e-5),
        ({"label_smoothing_factor": 0.1, "gradient_accumulation_steps": 2}, 1e-5),
    ],
    ids=["plain", "bf16", "checkpointing", "reentrant checkpointing", "label smoothing"],
)
def test_a_training_has_the_losses_and_weights_of_an_untouched_model(
    name: str, settings: dict[str, Any], tolerance: float, tmp_path: Path
) -> None:
    fast, theirs = pair(name)
    trainers = [trainer_for(model, tmp_path, **settings) for model in (fast, theirs)]
    for trainer in trainers:
        trainer.train()
    assert losses(trainers[0]) == pytest.approx(losses(trainers[1]), abs=tolerance)
    for (key, one), two in zip(fast.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, two, atol=tolerance, rtol=0, msg=lambda text, key=key: f"{key}: {text}")
    mine, other = (trainer.evaluate()["eval_loss"] for trainer in trainers)
    assert mine == pytest.approx(other, abs=tolerance)
    served, fallbacks = counts(fast)
    assert served >= STEPS + 1
    assert fallbacks == {}


def test_a_resumed_training_ends_with_the_bits_of_an_uninterrupted_one(tmp_path: Path) -> None:
    dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    settings: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2, "optim": "adamw_torch"}
    whole, resumed = (bertmill.accelerate(untouched("BertForSequenceClassification", **dropout)) for _ in range(2))
    trainer_for(whole, tmp_path, **settings).train()
    with torch.no_grad():
        for parameter in resumed.parameters():
            parameter.zero_()
    trainer_for(resumed, tmp_path, **settings).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    for one, two in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, two)
    assert counts(resumed) == (2, {})
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "checkpoint-4")
    expected = whole.eval()(**inputs_for("")).logits
    torch.testing.assert_close(plain(**inputs_for("")).logits, expected, atol=2e-5, rtol=0)


def test_a_masked_language_model_trains_without_logits_and_evaluates_with_them(tmp_path: Path) -> None:
    fast, theirs = pair("BertForMaskedLM", logits=False)
    trainers = [trainer_for(model, tmp_path) for model in (fast, theirs)]
    for trainer in trainers:
        trainer.train()
    assert losses(trainers[0]) == pytest.approx(losses(trainers[1]), abs=1e-5)
    assert trainers[0].predict(rows_for("BertForMaskedLM")).predictions.shape[-1] == V
