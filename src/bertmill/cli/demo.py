"""`bertmill demo`: runs the whole pipeline on the documentation of installed packages."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from bertmill.checkpoint.names import find_model
from bertmill.cli.progress import ProgressLine
from bertmill.cli.streams import say
from bertmill.config.commands import DemoSettings
from bertmill.demo.documentation import LIBRARIES
from bertmill.demo.folder import FILLED, MINILM, PRETRAINED, RANDOM, Demo, open_demo
from bertmill.demo.preparation import build_training_corpus, collect_documentation, learn_pieces, sources_of
from bertmill.storage import read_json
from bertmill.text.printable import one_line

TABLE_WIDTH = 100  # characters; no cell needs to wrap
START_NAMES = {PRETRAINED: "pre-trained here", RANDOM: "random weights", MINILM: "MiniLM"}
SHOWN = ("classify-minilm", "tag-pretrained", "answer-minilm")  # one model per task
Results = Mapping[str, Any]


def run(settings: DemoSettings) -> None:
    """Run the stages that are not done yet, then print the results."""
    find_model(MINILM)  # fail now if it is not installed, not after minutes of work
    with open_demo(settings) as demo:
        stages = _Stages(demo)
        _prepare(demo, stages)
        _train(demo, stages)
        results = _measure(demo, stages)
        print(f"\n{_table(demo, results)}\n{_gain(results['gain'])}")
        print("\n".join(["", *_predictions(results["tasks"]), "", *_next_steps(demo)]))


class _Stages:
    """Announces each stage with the elapsed time, and records how long it takes."""

    def __init__(self, demo: Demo) -> None:
        self._demo = demo
        self._started = time.monotonic()

    @contextmanager
    def stage(self, name: str, title: str, *, is_done: bool) -> Iterator[None]:
        """Announce a stage, and record the time of the block unless the stage is already done."""
        started = time.monotonic()
        if not self._demo.settings.quiet:
            minutes, seconds = divmod(round(started - self._started), 60)
            say(f"[{minutes}:{seconds:02d}] {title}{' (already done)' * is_done}")
        try:
            yield
        finally:
            if not is_done:
                self._demo.add_seconds(name, time.monotonic() - started)


def _prepare(demo: Demo, stages: _Stages) -> None:
    quiet = demo.settings.quiet
    title = f"collecting the documentation of {len(LIBRARIES)} installed libraries"
    is_done = demo.documentation.exists()
    with stages.stage("documentation", title, is_done=is_done):
        if not is_done:
            files = sources_of(demo)
            with ProgressLine("source", sum(file.num_bytes for file in files), quiet=quiet) as progress:
                collect_documentation(demo, files, progress.update)
    if not quiet:
        say(_collected(read_json(demo.facts)))
    num_bytes = demo.train_text.stat().st_size
    next_stages = (
        ("vocabulary", f"learning a vocabulary of {demo.plan.vocabulary_size:,} pieces", demo.vocabulary, learn_pieces),
        ("corpus", "building a corpus", demo.corpus, build_training_corpus),
    )
    for name, title, result, work in next_stages:
        is_done = result.exists()
        line = ProgressLine(name, num_bytes, quiet=quiet or is_done)
        with stages.stage(name, title, is_done=is_done), line as progress:
            work(demo, progress.update)


def _collected(facts: Results) -> str:
    """A one-line summary of the collected documentation."""
    objects, characters, train, heldout = (
        sum(of_library[name] for of_library in facts.values())
        for name in ("objects", "characters", "train_modules", "heldout_modules")
    )
    return (
        f"{characters / 1e6:.1f} MB of prose about {objects:,} objects in {train + heldout:,} modules, "
        f"{heldout:,} of which are held out from training"
    )


def _train(demo: Demo, stages: _Stages) -> None:
    # These modules import torch. The stages before this one can fork their workers only if torch is not loaded.
    from bertmill.cli.training import PretrainingDisplay, TrainingDisplay
    from bertmill.demo.experiments import finetune_model, is_finished, pretrain_encoder, write_random_encoder
    from bertmill.demo.measurement import fill_masks

    plan, quiet = demo.plan, demo.settings.quiet
    duration = f"{plan.budget_s} s" if plan.budget_s else f"{plan.steps:,} steps"
    title = f"pre-training an encoder of size {plan.encoder} for {duration}"
    is_done = is_finished(demo.pretraining)
    with stages.stage("pretrain", title, is_done=is_done), PretrainingDisplay(quiet=quiet or is_done) as display:
        pretrain_encoder(demo, display)
    title, is_done = "filling masks in sentences from held-out modules", demo.figures_of(FILLED).exists()
    with stages.stage("fill", title, is_done=is_done):
        lines = [_filled(sentence) for sentence in fill_masks(demo)]
    print("\n".join(["Predictions for [MASK]:", *lines]), flush=True)
    with stages.stage("random", "initializing the same encoder with random weights", is_done=demo.random.exists()):
        write_random_encoder(demo)
    for tuning in plan.tunings:
        title, is_done = f"fine-tuning {tuning.task} ({START_NAMES[tuning.start]})", is_finished(demo.run_of(tuning))
        with stages.stage(tuning.name, title, is_done=is_done), TrainingDisplay(quiet=quiet or is_done) as shown:
            finetune_model(demo, tuning, shown)


def _measure(demo: Demo, stages: _Stages) -> Results:
    from bertmill.demo.measurement import measure_tuning, write_demo_report, write_results

    with stages.stage("measure", "evaluating every model on held-out modules", is_done=demo.results.exists()):
        for tuning in demo.plan.tunings:
            measure_tuning(demo, tuning)
    with stages.stage("report", "writing the report", is_done=demo.report.exists()):
        write_demo_report(demo)
    return write_results(demo)


def _filled(sentence: Results) -> str:
    guesses = ", ".join(f"{guess['piece']} {guess['score']:.0%}" for guess in sentence["guesses"])
    return f"  {one_line(sentence['text'])}\n    {guesses} (expected: {sentence['expected']})"


def _table(demo: Demo, results: Results) -> str:
    """The results on held-out modules, next to those of the best constant prediction."""
    table = Table(box=box.SIMPLE, title="Results on held-out modules", title_justify="left")
    for name in ("task", "model", "metric"):
        table.add_column(name)
    for name in ("result", "95% CI", "baseline", "count"):
        table.add_column(name, justify="right")
    rows = [("MLM", PRETRAINED, results["masked_words"])]
    rows += [(tuning.task, tuning.start, results["tasks"][tuning.name]) for tuning in demo.plan.tunings]
    for task, start, figures in rows:
        interval = f"{figures['low']:.1%} … {figures['high']:.1%}"
        values = (f"{figures['value']:.1%}", interval, f"{figures['baseline']:.1%}", f"{figures['rows']:,}")
        table.add_row(task, START_NAMES[start], figures["metric"].replace("_", " "), *values)
    text = io.StringIO()
    Console(file=text, width=TABLE_WIDTH, markup=False, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().strip("\n").split("\n"))


def _gain(figures: Results) -> str:
    value, low, high = (f"{100 * figures[name]:+.1f}" for name in ("value", "low", "high"))
    interval = f"95% CI: {low} to {high}, {figures['rows']:,} rows"
    return f"Gain on classify from pre-training: {value} points of accuracy ({interval})."


def _predictions(tasks: Results) -> Iterator[str]:
    yield "Predictions for test rows:"
    for name in SHOWN:
        for row in tasks[name]["shown"]:
            yield f"  {name}: {' | '.join(map(one_line, row['texts']))}"
            yield f"    {row['prediction']} (expected: {one_line(row['expected']) or 'none'})"


def _next_steps(demo: Demo) -> Iterator[str]:
    yield f"Report: {demo.report}"
    yield f"Results: {demo.results}"
    yield f"Time: {sum(demo.read_seconds().values()):,.0f} s"
    yield "Next, with your own files:"
    yield "  bertmill finetune classify --model minilm --train rows.tsv --out classifier"
    yield "  bertmill predict classifier/model texts.tsv --out predictions.jsonl"
    yield "  bertmill vocab texts/ --out vocabulary"
    yield "The last command is the first step toward your own encoder; corpus and pretrain come next."
