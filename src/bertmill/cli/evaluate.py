"""`bertmill evaluate`: evaluates a fine-tuned model on labeled rows and prints tables or JSON."""

from __future__ import annotations

from bertmill.cli.progress import print_row_remarks
from bertmill.config.commands import EvaluateSettings
from bertmill.inference.evaluation import Evaluation, evaluate
from bertmill.inference.runner import Runner
from bertmill.machine import set_threads
from bertmill.rows.source import RowFile
from bertmill.tasks.base import encode_rows
from bertmill.tasks.metrics import ClassReport
from bertmill.text.printable import counted, escaped, json_line, one_line

MAX_SHOWN_CLASSES = 12  # a larger confusion matrix does not fit on a screen


def run(settings: EvaluateSettings) -> None:
    """Print the metrics, classes and worst errors of a model."""
    set_threads(settings.threads)
    runner = Runner(settings.model, settings.device, settings)
    file, task = RowFile(str(settings.data), settings, tags=settings.tags), runner.task
    rows = runner.read(file, labelled=True)
    examples = list(encode_rows(task, rows, runner.windows, file))  # all errors in the rows come before the work
    evaluation = evaluate(task, runner.model, examples, runner.device, settings.worst)
    if not settings.quiet:
        print_row_remarks(file.counts, runner.windows)
    if settings.as_json:
        print(json_line(evaluation.to_json()))
    else:
        print("\n".join(map(escaped, _lines(evaluation))))


def _lines(evaluation: Evaluation) -> list[str]:
    lines = [counted(evaluation.num_rows, "row")]
    for name, value in evaluation.metrics.items():
        low, high = evaluation.intervals[name]
        lines.append(f"  {name.replace('_', ' '):<20} {value:8.4f}   95% CI: {low:.4f} … {high:.4f}")
    lines += _class_lines(evaluation.classes)
    for error in evaluation.errors:
        expected = one_line(" | ".join(error.expected)) or "none"
        lines += ["", f"  {error.row.place}: {error.shown}, expected {expected}"]
        lines += [f"    {one_line(text)}" for text in error.row.all_texts]
    return lines


def _class_lines(classes: ClassReport) -> list[str]:
    if not classes.figures:
        return []
    width = max(len("class"), *(len(each.label) for each in classes.figures))
    lines = ["", f"  {'class':<{width}}  precision  recall      F1    rows"]
    lines += [
        f"  {each.label:<{width}}  {each.precision:9.4f}  {each.recall:6.4f}  {each.f1:6.4f}  {each.rows:6,}"
        for each in classes.figures
    ]
    if len(classes.confusion) > MAX_SHOWN_CLASSES:
        lines += ["", f"  --json prints the confusion matrix of the {len(classes.confusion):,} classes"]
    elif classes.confusion:
        lines += ["", "  expected (rows) and predicted (columns)", *_matrix(classes)]
    return lines


def _matrix(classes: ClassReport) -> list[str]:
    labels = [each.label for each in classes.figures]
    width = max(7, *map(len, labels))
    head = " ".join(f"{label:>{width}}" for label in labels)
    rows = (" ".join(f"{count:>{width},}" for count in row) for row in classes.confusion)
    return [f"  {label:<{width}} {row}" for label, row in zip(["", *labels], [head, *rows], strict=True)]
