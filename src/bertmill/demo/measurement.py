"""Measure every model of the demo on held-out text or test rows, and write the results.

The MLM accuracy comes from the evaluation of the pre-training run. The other intervals are 95% bootstrap intervals that
resample rows; for the gain from pre-training, rows with the predictions of both models (paired). Baselines are constant
predictions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertmill.demo.documentation import SEED
from bertmill.demo.folder import FILLED, FORMAT, GAIN, Demo, Tuning
from bertmill.inference.predictor import load
from bertmill.inference.runner import Runner, scores_of, stream_outputs
from bertmill.machine import set_threads
from bertmill.randomness import keyed_seed
from bertmill.report.page import write_report, write_run_report
from bertmill.rows.source import RowFile
from bertmill.storage import read_json, write_file
from bertmill.tasks.base import encode_rows
from bertmill.tasks.metrics import intervals
from bertmill.text.sentences import split_sentences
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.state import RunFolder

NUM_SENTENCES = 4  # with a masked word
NUM_GUESSES = 3
NUM_SHOWN = 2  # test rows per model with their predictions

Results = dict[str, Any]


def _measured(demo: Demo, name: str, measure: Callable[[], Results]) -> Results:
    """The result of `measure`, read from its file if it has been called before."""
    path = demo.figures_of(name)
    if not path.exists():
        set_threads(demo.settings.threads)
        results = measure()
        demo.measured.mkdir(exist_ok=True)
        write_file(path, json.dumps(results, ensure_ascii=False) + "\n")
    return read_json(path)


# MLM accuracy


def masked_words(demo: Demo) -> Results:
    """The MLM accuracy of the encoder on held-out text; the baseline always predicts the most frequent piece."""
    evaluation = read_json(RunFolder(demo.pretraining).evaluation)
    metric = "mlm_accuracy"
    return {
        "metric": "accuracy",
        **evaluation["metrics"][metric],
        "rows": evaluation["selected"],
        "baseline": evaluation["baseline"]["metrics"][metric],
    }


def _result(metric: str, values: Mapping[str, float], bounds: Mapping[str, tuple[float, float]]) -> Results:
    low, high = bounds[metric]
    return {"metric": metric, "value": values[metric], "low": low, "high": high}


# Filling masks


def fill_masks(demo: Demo) -> list[Results]:
    """Sentences from held-out modules with one masked word, the word, and what the encoder predicts."""
    results = _measured(demo, FILLED, lambda: {"sentences": _fill_masks(demo)})
    sentences: list[Results] = results["sentences"]
    return sentences


def _fill_masks(demo: Demo) -> list[Results]:
    model = load(RunFolder(demo.pretraining).model)
    lines = demo.heldout_text.read_text(encoding="utf-8").splitlines()
    sentences = sorted(
        {sentence for line in lines for sentence in split_sentences(line)},
        key=lambda sentence: keyed_seed(SEED, "to fill", sentence),
    )
    masked = (found for sentence in sentences if (found := mask_a_word(sentence, model.tokenizer)))
    filled = []
    for text, word in islice(masked, NUM_SENTENCES):
        guesses: Any = model.fill(text, NUM_GUESSES)
        shown = [{"piece": guess["token_str"], "score": guess["score"]} for guess in guesses]
        filled.append({"text": text, "expected": word, "guesses": shown})
    return filled


def mask_a_word(sentence: str, tokenizer: BertTokenizer) -> tuple[str, str] | None:
    """Mask a word that is a single piece; return the sentence and the word, or None if the sentence is unsuitable."""
    words = sentence.removesuffix(".").split(" ")
    is_plain = sentence.endswith(".") and sentence[0].isupper() and 7 <= len(words) <= 14
    if not is_plain or not all(word.rstrip(",").isalpha() for word in words):
        return None
    places = [n for n, word in enumerate(words) if n and len(word) > 3 and word.islower() and word in tokenizer.vocab]
    if not places:
        return None
    place = places[keyed_seed(SEED, "word", sentence) % len(places)]
    masked = [*words[:place], tokenizer.mask_token, *words[place + 1 :]]
    return " ".join(masked) + ".", words[place]


# Tasks


def measure_tuning(demo: Demo, tuning: Tuning) -> Results:
    """The metric of a fine-tuned model on the test rows, the scores of each row, and a few predictions."""
    return _measured(demo, tuning.name, lambda: _measure_tuning(demo, tuning))


def _measure_tuning(demo: Demo, tuning: Tuning) -> Results:
    folder = RunFolder(demo.run_of(tuning)).model
    runner = Runner(folder)
    task, file = runner.task, RowFile(str(demo.rows_of(tuning.task, "test")))
    examples = list(encode_rows(task, runner.read(file, labeled=True), runner.windows, file))
    outputs = list(stream_outputs(task, runner.model, examples, runner.device))
    scores = scores_of(task, outputs)
    metric = runner.metric
    _, constant = task.baseline(examples, metric)
    shown = []
    for (example, output), score in zip(outputs[:NUM_SHOWN], scores, strict=False):
        (decoded,) = task.decode([example], [output])
        _, expected = task.mistake(example, output, score)
        texts = list(example.row.all_texts)
        shown.append({"texts": texts, "prediction": task.show(decoded), "expected": " | ".join(expected)})
    return {
        **_result(metric, task.metrics(scores), intervals(task.metrics, scores)),
        "rows": len(examples),
        "baseline": task.metrics(constant)[metric],
        "shown": shown,
        "scores": scores.tolist(),
    }


def measure_gain(demo: Demo) -> Results:
    """The gain in classification accuracy from pre-training, with a paired bootstrap interval."""
    pretrained, random = (np.array(read_json(demo.figures_of(name))["scores"]) for name in GAIN)
    # The scores of a classifier are the predicted and the expected class.
    right = np.stack([pretrained[:, 0] == pretrained[:, 1], random[:, 0] == random[:, 1]], 1).astype(np.float64)

    def metrics(right: NDArray[np.float64]) -> Mapping[str, float]:
        return {"gain": float(right[:, 0].mean() - right[:, 1].mean())}

    return {**_result("gain", metrics(right), intervals(metrics, right)), "rows": len(right)}


# Results and report


def write_results(demo: Demo) -> Results:
    """Write and return all results; measures what has not been measured yet."""
    models = {tuning.name: measure_tuning(demo, tuning) for tuning in demo.plan.tunings}
    results = {
        "format": FORMAT,
        "settings": demo.recorded_settings,
        "documentation": read_json(demo.facts),
        "masked_words": masked_words(demo),
        "filled": fill_masks(demo),
        "tasks": {name: {key: value[key] for key in value if key != "scores"} for name, value in models.items()},
        "gain": measure_gain(demo),
        "seconds": demo.read_seconds(),
    }
    write_file(demo.results, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    return results


def write_demo_report(demo: Demo) -> None:
    """Write the report of every run and the one that compares them, unless they exist."""
    if not demo.report.exists():
        runs = [demo.pretraining, *map(demo.run_of, demo.plan.tunings)]
        for run in runs:
            write_run_report(run)
        write_report(runs, demo.report)
