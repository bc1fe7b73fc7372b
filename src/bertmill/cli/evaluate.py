"""`bertmill evaluate`: evaluates a fine-tuned model on labeled rows and prints tables or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bertmill.cli.progress import RowCounter, print_row_remarks
from bertmill.cli.streams import say
from bertmill.config.commands import EvaluateSettings
from bertmill.inference.evaluation import Evaluation, evaluate
from bertmill.inference.runner import Runner
from bertmill.machine import set_threads
from bertmill.rows.source import RowFile
from bertmill.tasks.base import encode_rows
from bertmill.tasks.metrics import ClassFigures, ClassReport, ConfusedPair, confused_pairs
from bertmill.text.printable import counted, escaped, json_line, one_line

MAX_CLASSES = 20
MAX_PAIRS = 10
MAX_MATRIX_CLASSES = 12  # a larger confusion matrix does not fit on a screen
MAX_NAME = 30  # characters of the name of a class
MAX_MATRIX_NAME = 15
MATRIX_WIDTH = 100  # characters

SORT_KEYS: dict[str, Callable[[ClassFigures], Any]] = {
    "rows": lambda each: -each.rows,
    "f1": lambda each: (each.f1, -each.rows),
    "name": lambda _each: 0,  # the report is in this order
}


def run(settings: EvaluateSettings) -> None:
    """Print the metrics, classes and worst errors of a model."""
    set_threads(settings.threads)
    runner = Runner(settings.model, settings.device, settings)
    file, task = RowFile(settings.file, settings, tags=settings.tags), runner.task
    rows = runner.read(file, labeled=True)
    examples = list(encode_rows(task, rows, runner.windows, file))  # all errors in the rows come before the work
    with RowCounter(quiet=settings.quiet) as counter:
        evaluation = evaluate(
            task, runner.model, examples, runner.device, settings.worst, runner.metric, ran=counter.add
        )
    if settings.as_json:
        print(json_line({**evaluation.to_json(), "method": runner.method}))
    else:
        print("\n".join(map(escaped, _lines(evaluation, settings.sort_by, show_all=settings.show_all))), flush=True)
        if evaluation.warning:
            say(escaped(f"warning: {evaluation.warning}"))
    if not settings.quiet:
        print_row_remarks(file.counts, runner.windows)


def _lines(evaluation: Evaluation, sort_by: str, *, show_all: bool) -> Iterator[str]:
    yield counted(evaluation.num_rows, "row")
    for name, value in evaluation.metrics.items():
        low, high = evaluation.intervals[name]
        baseline = f"baseline: {evaluation.baseline.metrics[name]:.4f}"
        yield f"  {name.replace('_', ' '):<20} {value:8.4f}   95% CI: {low:.4f} … {high:.4f}   {baseline}"
    yield f"  The baseline is the best constant prediction: {evaluation.baseline.shown}."
    yield from _class_lines(evaluation.classes, sort_by, show_all=show_all)
    for error in evaluation.errors:
        expected = one_line(" | ".join(error.expected)) or "none"
        yield from ("", f"  {error.row.place}: {error.shown}, expected {expected}")
        yield from (f"    {one_line(text)}" for text in error.row.all_texts)


def _class_lines(classes: ClassReport, sort_by: str, *, show_all: bool) -> Iterator[str]:
    if not classes.figures:
        return
    count = len(classes.figures)
    shown = sorted(classes.figures, key=SORT_KEYS[sort_by])[: count if show_all else MAX_CLASSES]
    width = max(len("class"), *(len(_name(each)) for each in shown))
    yield from ("", f"  {'class':<{width}}  precision  recall      F1    rows")
    for each in shown:
        yield f"  {_name(each):<{width}}  {each.precision:9.4f}  {each.recall:6.4f}  {each.f1:6.4f}  {each.rows:6,}"
    if len(shown) < count:
        yield f"  … and {count - len(shown):,} more; --all shows all classes, --sort-by f1 the weakest first"
    if classes.confusion and count <= MAX_MATRIX_CLASSES:
        yield from ("", "  expected (rows) and predicted (columns)", *_matrix(classes))
    pairs = confused_pairs(classes.confusion) if count > 2 else []
    if pairs:
        yield from _pair_lines(classes, pairs if show_all else pairs[:MAX_PAIRS])


def _pair_lines(classes: ClassReport, pairs: Sequence[ConfusedPair]) -> Iterator[str]:
    names = [_name(each) for each in classes.figures]
    width = max(len("most confused"), *(len(names[pair.expected]) for pair in pairs))
    yield from ("", f"  {'most confused':<{width}}    rows  predicted as")
    for pair in pairs:
        yield f"  {names[pair.expected]:<{width}}  {pair.rows:6,}  {names[pair.predicted]}"


def _name(figures: ClassFigures) -> str:
    return one_line(figures.label, MAX_NAME)


def _matrix(classes: ClassReport) -> Iterator[str]:
    """The confusion matrix, with names that are cut to fit on a screen."""
    names = [one_line(each.label, MAX_MATRIX_NAME) for each in classes.figures]
    left = max(map(len, names))
    width = max(7, min(left, (MATRIX_WIDTH - left) // len(names) - 1))
    heads = (one_line(each.label, width - 1) for each in classes.figures)
    yield f"  {'':<{left}} {' '.join(f'{head:>{width}}' for head in heads)}"
    for name, row in zip(names, classes.confusion, strict=True):
        yield f"  {name:<{left}} {' '.join(f'{count:>{width},}' for count in row)}"
