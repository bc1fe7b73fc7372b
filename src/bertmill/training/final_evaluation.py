"""RUN/evaluation.json: what the report of a finished run shows about its model.

- Fine-tuning: an evaluation on the dev rows with intervals, a baseline and the worst errors.
- Pre-training: metrics on held-out instances with intervals and a baseline, and predictions at selected positions
  (without held-out text: only predictions, for training instances).
- Both: the attention weights of a few sequences.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertmill.corpus.instances import Instances
from bertmill.corpus.masking import NOT_SELECTED
from bertmill.inference.attention import attention_pages
from bertmill.inference.evaluation import NUM_ERRORS, Evaluation, evaluate_outputs
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.storage import write_file
from bertmill.tasks.base import AnyTask, Array, Example
from bertmill.tasks.metrics import intervals
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.clipping import clipped
from bertmill.training.dataset import Dataset
from bertmill.training.objective_trainable import (
    HELDOUT_BATCH,
    MAX_HELDOUT_INSTANCES,
    ObjectiveTrainable,
    run_model,
)

NUM_SEQUENCES = 4  # with attention weights; up to half of them are errors
NUM_INSTANCES = 6  # with predictions
GROUP = 8  # instances to resample together, since neighbors may come from the same document
MAX_POSITIONS = 16  # with predictions per instance
NUM_GUESSES = 5  # per position
MAX_CLASSES = 2000  # the most frequent


def write_evaluation(path: Path, content: dict[str, Any]) -> None:
    """Write RUN/evaluation.json. Long texts are clipped, and data that the report does not show is omitted."""
    content = {"format": 1, **content}
    if "worst" in content:
        left_out = ("answer", "expected")
        content["worst"] = [
            {
                **{name: value for name, value in error.items() if name not in left_out},
                "place": Path(error["place"]).name,  # a resumed run knows the whole path only
                "expected": _joined(error),
            }
            for error in content["worst"]
        ]
    if len(content.get("classes", [])) > MAX_CLASSES:
        content["classes"] = sorted(content["classes"], key=lambda each: -each["rows"])[:MAX_CLASSES]
    attention = content.pop("attention", [])  # large, and bounded already
    write_file(path, json.dumps({**clipped(content), "attention": attention}, ensure_ascii=False) + "\n")


def _joined(error: dict[str, Any]) -> str:
    return " | ".join(error["expected"])


def evaluate_finetuning(
    task: AnyTask,
    model: BertPreTrainedModel,
    data: Dataset,
    outputs: Sequence[tuple[Example, Array]],
    tokenizer: BertTokenizer,
) -> tuple[Evaluation, dict[str, Any]]:
    """Evaluate the outputs for examples that were not trained on; also returns the content of evaluation.json.

    `model` provides the attention weights of some of them.
    """
    is_tuned = task is not data.task
    evaluation = evaluate_outputs(task, outputs, NUM_ERRORS, data.metric, is_tuned_on_examples=is_tuned)
    judged = [example for example, _ in outputs]
    wrong = [error.row for error in evaluation.errors[: NUM_SEQUENCES // 2]]
    examples = [next(each for each in judged if each.row is row) for row in wrong]
    examples += [each for each in judged[:NUM_SEQUENCES] if not any(each is other for other in examples)]
    windows = [example.sequences[0][0] for example in examples[:NUM_SEQUENCES]]
    pages = attention_pages(model, tokenizer, [(window.ids.tolist(), window.num_first) for window in windows])
    return evaluation, {"on": data.judged_on, **evaluation.to_json(), "attention": pages}


def evaluate_pretraining(
    model: BertPreTrainedModel, trainable: ObjectiveTrainable, tokenizer: BertTokenizer
) -> dict[str, Any]:
    """Evaluate a pre-trained model on held-out text; returns the content of evaluation.json."""
    instances = trainable.heldout or trainable.loader.instances
    head = trainable.objective.language_model_head
    piece, accuracy = _most_frequent(instances)
    shown = _first_instances(instances)
    return {
        "on": "train" if trainable.heldout is None else "heldout",
        **({} if trainable.heldout is None else _heldout_metrics(model, trainable.heldout, model.device)),
        "baseline": {
            "answer": f'always "{tokenizer.convert_ids_to_tokens(piece)}"',
            "metrics": {f"{head}_accuracy": accuracy},
        },
        "vocabulary_size": len(tokenizer),
        "unigram_entropy": float(trainable.loader.instances.corpus.facts["statistics"]["unigram_entropy"]),
        "predictions": [_predictions(model, tokenizer, *each) for each in shown],
        "attention": attention_pages(
            model, tokenizer, [(ids.tolist(), _num_first(segments)) for ids, segments, _ in shown[:NUM_SEQUENCES]]
        ),
    }


@torch.inference_mode()
def _heldout_metrics(model: BertPreTrainedModel, instances: Instances, device: torch.device) -> dict[str, Any]:
    """The metrics with intervals, and the number of selected positions."""
    objective = instances.objective
    names = objective.sum_names
    count = min(instances.count(0), MAX_HELDOUT_INSTANCES)
    groups = []
    for start in range(0, count, GROUP):
        batch = instances.make_in_order(0, start, min(start + GROUP, count))
        sums = objective.sums(run_model(model, batch, device), batch)
        groups.append([sums[name] for name in names])

    def metrics(groups: NDArray[Any]) -> dict[str, float]:
        return objective.heldout_figures(dict(zip(names, groups.sum(0).tolist(), strict=True)))

    scores = np.array(groups)
    values, bounds = metrics(scores), intervals(metrics, scores)
    return {
        "metrics": {name: {"value": values[name], "low": low, "high": high} for name, (low, high) in bounds.items()},
        "selected": int(scores[:, names.index(f"{objective.language_model_head}_count")].sum()),
    }


def _most_frequent(instances: Instances) -> tuple[int, float]:
    """The most frequent label of the instances, and the accuracy of always predicting it."""
    counts = np.zeros(instances.vocabulary.size, np.int64)
    count = min(instances.count(0), MAX_HELDOUT_INSTANCES)
    for start in range(0, count, HELDOUT_BATCH):
        labels = instances.make_in_order(0, start, min(start + HELDOUT_BATCH, count)).labels
        counts += np.bincount(labels[labels != NOT_SELECTED], minlength=len(counts))
    return int(counts.argmax()), float(counts.max() / max(1, counts.sum()))


def _first_instances(instances: Instances) -> list[tuple[Any, Any, Any]]:
    """Ids, segments and labels of the first few instances."""
    batch = instances.make_in_order(0, 0, min(NUM_INSTANCES, instances.count(0)))
    bounds = np.cumsum(batch.lengths)[:-1]
    rows = (np.split(row, bounds) for row in (batch.piece_ids, batch.segments, batch.labels))
    return list(zip(*rows, strict=True))


def _num_first(segments: Any) -> int:
    return int((segments == 0).sum())


@torch.inference_mode()
def _predictions(
    model: BertPreTrainedModel, tokenizer: BertTokenizer, ids: Any, segments: Any, labels: Any
) -> dict[str, Any]:
    """The pieces of an instance, and the most likely pieces at some of its selected positions, evenly spaced."""
    shift = int(model.config.causal)  # a left-to-right model predicts the next piece
    selected = np.flatnonzero(labels != NOT_SELECTED)
    places = selected[np.unique(np.linspace(0, len(selected) - 1, MAX_POSITIONS).round().astype(int))].tolist()
    input_ids, token_type_ids = (torch.from_numpy(each)[None].to(model.device) for each in (ids, segments))
    output: Any = model(input_ids, token_type_ids=token_type_ids)
    logits = output.get("prediction_logits", output.get("logits"))[0, places, : len(tokenizer)]
    best = logits.float().softmax(-1).topk(min(NUM_GUESSES, len(tokenizer)))
    guesses = zip(places, best.indices.tolist(), best.values.tolist(), strict=True)
    return {
        "pieces": tokenizer.convert_ids_to_tokens(ids.tolist()),
        "num_first": _num_first(segments),
        "positions": [
            {
                "place": place + shift,
                "expected": tokenizer.convert_ids_to_tokens(int(labels[place])),
                "guesses": [
                    {"piece": tokenizer.convert_ids_to_tokens(piece), "probability": probability}
                    for piece, probability in zip(pieces, probabilities, strict=True)
                ],
            }
            for place, pieces, probabilities in guesses
        ],
    }
