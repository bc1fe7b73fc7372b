"""`bertmill evaluate`: how good a fine-tuned model is on labelled rows, as tables or JSON."""

from __future__ import annotations

import json

from bertmill.cli.progress import tell_about_rows
from bertmill.config.commands import EvaluateSettings
from bertmill.inference.answering import TaskModel
from bertmill.inference.evaluation import Evaluation, evaluate
from bertmill.machine import set_threads
from bertmill.tasks.base import Answer
from bertmill.tasks.datasets import examples_of
from bertmill.tasks.metrics import ByClass
from bertmill.tasks.raw_rows import shortened
from bertmill.tasks.reading import RowCounts, read_labelled

MAX_SHOWN_CLASSES = 12  # of a confusion matrix; more do not fit on a screen


def run(settings: EvaluateSettings) -> None:
    set_threads(settings.threads)
    model = TaskModel(settings.model, settings.device, settings)
    file, task, counts = str(settings.data), model.task, RowCounts()
    rows = read_labelled(file, settings, counts, task=task.name, may_have_no_label=task.may_have_no_label)
    examples = examples_of(task, rows, settings, counts, file)
    evaluation = evaluate(model, examples, settings.worst)
    if not settings.quiet:
        tell_about_rows(counts, model.make_windows.remark)
    if settings.as_json:
        print(json.dumps(evaluation.to_json(), ensure_ascii=False))
    else:
        print("\n".join(_lines(evaluation)))


def _lines(evaluation: Evaluation) -> list[str]:
    lines = [f"{evaluation.num_rows:,} rows"]
    for name, value in evaluation.metrics.items():
        low, high = evaluation.intervals[name]
        lines.append(f"  {name.replace('_', ' '):<20} {value:8.4f}   95 %: {low:.4f} … {high:.4f}")
    by_class = evaluation.by_class
    if by_class.figures:
        width = max(len("class"), *(len(each.label) for each in by_class.figures))
        lines += ["", f"  {'class':<{width}}  precision  recall      F1    rows"]
        lines += [
            f"  {each.label:<{width}}  {each.precision:9.4f}  {each.recall:6.4f}  {each.f1:6.4f}  {each.rows:6,}"
            for each in by_class.figures
        ]
    if len(by_class.confusion) > MAX_SHOWN_CLASSES:
        lines += ["", f"  which of {len(by_class.confusion):,} classes is taken for which: --json tells"]
    elif by_class.confusion:
        lines += ["", "  right (rows) and answered (columns)", *_matrix(by_class)]
    for row, answer in evaluation.worst:
        right = _in_words(row.label, " " if "tags" in answer else " | ")
        lines += ["", f"  {row.place}: {_answered(answer)}, right is {shortened(right) or 'nothing'}"]
        lines += [f"    {shortened(text)}" for text in row.texts]
        lines += [f"    choice {number}: {shortened(choice)}" for number, choice in enumerate(row.choices)]
    return lines


def _matrix(by_class: ByClass) -> list[str]:
    labels = [each.label for each in by_class.figures]
    width = max(7, *map(len, labels))
    head = " ".join(f"{label:>{width}}" for label in labels)
    return [
        f"  {'':<{width}} {head}",
        *(
            f"  {label:<{width}} " + " ".join(f"{count:>{width},}" for count in row)
            for label, row in zip(labels, by_class.confusion, strict=True)
        ),
    ]


def _in_words(value: object, between: str = " | ") -> str:
    return between.join(value) if isinstance(value, list | tuple) else str(value)


def _answered(answer: Answer) -> str:
    """The answer itself, without the scores of all others."""
    if "tags" in answer:
        return f"tags {shortened(' '.join(answer['tags']))}"
    return ", ".join(
        f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {shortened(_in_words(value)) or 'none'}"
        for name, value in answer.items()
        if name not in ("scores", "answers")
    )
