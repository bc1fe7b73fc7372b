"""Progress of a training run on standard error: a live bar on a terminal, plain lines elsewhere.

A pre-training loss is compared with ln V, the loss of random guessing among V pieces, and with the unigram entropy of
the corpus, the loss of a model that knows only piece frequencies. Speed is compared with a large matrix product.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from typing import Self

from bertmill.cli.progress import LINE_INTERVAL_S, make_bar, time_left
from bertmill.cli.streams import say
from bertmill.config.notation import with_flags
from bertmill.machine import matrix_product_rate
from bertmill.text.printable import escaped
from bertmill.training.objective_trainable import PretrainingBeginning
from bertmill.training.progress import Beginning, Line, Listener
from bertmill.training.recipe import OPERATIONS_PER_WEIGHT

BAR_INTERVAL_S = 0.2
# After this progress, a run is stuck if the losses of its last lines are this close to the unigram entropy.
STUCK_AFTER = 0.2
STUCK_LINES = 5
STUCK_WITHIN = 0.03


class TrainingDisplay(Listener):
    """Shows steps and log lines as they arrive."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._bar = make_bar(quiet=quiet)
        if self._bar is not None:
            self._task = self._bar.add_task("training", total=1.0, state="")
        self._steps = math.inf
        self._window_started = self._shown = self._last_step = time.monotonic()
        self._counted_before: Mapping[str, float] = {}  # since the last log line, before the run was interrupted
        self._first: tuple[float, float] | None = None  # progress and time of the first step

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def preparing(self, what: str, share: float) -> None:
        now = time.monotonic()
        if self._bar is not None:
            self._bar.start()
            self._bar.update(self._task, completed=share, state=what, refresh=True)
        elif not self._quiet and now - self._shown >= LINE_INTERVAL_S:
            self._shown = now
            say(f"{what}: {share:.0%} done")

    def begin(self, beginning: Beginning) -> None:
        self._steps, self._first, self._counted_before = beginning.steps, None, beginning.sums
        self._window_started = time.monotonic()
        if self._bar is not None:
            self._bar.start()

    def step(self, line: Line) -> None:
        now = self._last_step = time.monotonic()
        if self._first is None:
            self._first = (line["progress"], now)
        if self._bar is not None and now - self._shown >= BAR_INTERVAL_S:
            self._shown = now
            self._bar.update(self._task, completed=line["progress"], state=self._words(line), refresh=True)

    def line(self, line: Line) -> None:
        if self._quiet:
            return
        if "progress" not in line:  # the line of an evaluation
            self._print(f"step {line['step']:,}  {self._heldout_figures(line)}")
            self._window_started += time.monotonic() - self._last_step  # speed excludes evaluation
        else:
            self._print(self._words(line))
            self._window_started, self._counted_before = time.monotonic(), {}

    def remark(self, text: str) -> None:
        if not self._quiet:
            self._print(escaped(with_flags(text)))

    def warning(self, text: str) -> None:
        self._print(escaped(with_flags(f"warning: {text}")))

    def _print(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            say(text)

    def _words(self, line: Line) -> str:
        steps = f"/{self._steps:,.0f}" if math.isfinite(self._steps) else ""
        figures = self._figures(line) if "loss" in line else []
        return "  ".join([f"step {line['step']:,}{steps}", *figures, self._time_left(line["progress"])])

    def _figures(self, line: Line) -> list[str]:
        return [f"loss {line['loss']:.3f}", f"{self._per_second('examples', line):,.0f} examples/s"]

    def _heldout_figures(self, line: Line) -> str:
        figures = {name.removeprefix("dev_"): value for name, value in line.items() if name != "step"}
        return "dev: " + ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in figures.items())

    def _per_second(self, name: str, line: Line) -> float:
        count = line[name] - self._counted_before.get(name, 0.0)
        return float(count / max(1e-9, time.monotonic() - self._window_started))

    def _time_left(self, progress: float) -> str:
        if self._first is None or progress <= self._first[0]:
            return ""
        return time_left((time.monotonic() - self._first[1]) * (1 - progress) / (progress - self._first[0]))


class PretrainingDisplay(TrainingDisplay):
    """Shows a pre-training run: its loss next to reference losses, its speed next to the peak of the machine."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._known: PretrainingBeginning  # set by `begin`, before anything is shown
        self._peak_rate = math.nan
        self._last_losses: deque[float] = deque(maxlen=STUCK_LINES)
        self._has_said_stuck = False

    def begin(self, beginning: Beginning) -> None:
        assert isinstance(beginning, PretrainingBeginning)
        self._known = beginning
        if not self._quiet:
            peak_rate = matrix_product_rate(beginning.ranks.device, beginning.precision)
            self._peak_rate = beginning.ranks.count * peak_rate
            self.remark(
                "reference losses in nats per predicted piece: "
                f"random guessing {math.log(beginning.vocabulary_size):.2f}, "
                f"piece frequencies alone {beginning.unigram_entropy:.2f}"
            )
        super().begin(beginning)

    def line(self, line: Line) -> None:
        super().line(line)
        if "progress" in line and not self._quiet:
            self._warn_if_stuck(line)

    def _figures(self, line: Line) -> list[str]:
        figures = [f"loss {line['loss']:.3f}", *self._known.objective.describe_figures(line)]
        rate = self._per_second("pieces", line)
        share = OPERATIONS_PER_WEIGHT * self._known.weights_used * rate / self._peak_rate
        return [*figures, f"{rate:,.0f} pieces/s ({share:.0%} of peak)"]

    def _heldout_figures(self, line: Line) -> str:
        figures = {name.removeprefix("heldout_"): value for name, value in line.items()}
        return "held out: " + ", ".join(self._known.objective.describe_figures(figures))

    def _warn_if_stuck(self, line: Line) -> None:
        self._last_losses.append(line[self._known.objective.entropy_figure])
        entropy = self._known.unigram_entropy
        is_stuck = len(self._last_losses) == STUCK_LINES and all(
            abs(loss - entropy) < STUCK_WITHIN * entropy for loss in self._last_losses
        )
        if is_stuck and line["progress"] > STUCK_AFTER and not self._has_said_stuck:
            self._has_said_stuck = True
            self.remark(
                f"the loss stays near {entropy:.2f}, the loss of a model that knows only piece frequencies: the model "
                "does not use the context yet. Likely causes: too few steps, a learning rate that is too low or too "
                "high, batches that are too small"
            )
