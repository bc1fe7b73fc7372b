"""A run folder as plain data for the report: settings, curves from the log, evaluation and provenance.

Long logs become at most MAX_POINTS points, each the mean of consecutive lines. A truncated last line, left by a kill,
is ignored; any other line that is not a JSON object with a step is an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertmill.checkpoint.names import read_metadata
from bertmill.config.reading import RUN_FILE, read_run
from bertmill.corpus.facts import read_facts
from bertmill.errors import BertmillError, IntegrityError, UsageError
from bertmill.storage import read_json, require_format
from bertmill.tasks.metrics import confused_pairs
from bertmill.training.state import RunFolder

MAX_POINTS = 1000  # per curve, about one per pixel
MAX_CLASSES = 100  # in a confusion matrix
MAX_PAIRS = 30  # of confused classes

Line = Mapping[str, Any]


def read_run_data(path: Path, max_points: int = MAX_POINTS) -> dict[str, Any]:
    """The data of the run in `path`; UsageError if it is not a run, IntegrityError if it is damaged."""
    if not (path / RUN_FILE).is_file():
        raise UsageError(f"not a run folder ({RUN_FILE} is missing)", where=path)
    folder = RunFolder(path)
    content = read_run(path)
    lines = _read_log(folder.log)
    is_finished = folder.is_finished()
    evaluation = _read_evaluation(folder.evaluation) if is_finished else {}
    return {
        "name": path.resolve().name,
        "command": content.command,
        "is_finished": is_finished,
        "settings": content.settings,
        "sources": content.sources,
        "metadata": _metadata(folder.model) if is_finished else {},
        "training": _training_curves(lines, max_points),
        "evaluated": _evaluation_curves(lines, max_points),
        "references": _references(content.settings.get("corpus"), evaluation),
        "evaluation": evaluation,
    }


def _metadata(model: Path) -> dict[str, Any]:
    return {name: value for name, value in read_metadata(model).items() if name not in ("format", "dev", "heldout")}


def _read_log(path: Path) -> list[Line]:
    if not path.exists():
        return []
    texts = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]  # each ends with a line break
    return [_parse_line(text, f"{path}:{number}") for number, text in enumerate(texts, start=1)]


def _parse_line(text: str, place: str) -> Line:
    try:
        line = json.loads(text)
        if isinstance(line["step"], int) and all(isinstance(value, int | float) for value in line.values()):
            return line  # type: ignore[no-any-return]
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise IntegrityError("is not a line of a training log", where=place, remedy="restore the file, or remove the line")


def _training_curves(lines: Sequence[Line], max_points: int) -> dict[str, list[float | None]]:
    """The curve of each training metric, and of the pieces per second since the previous line."""
    trained = [line for line in lines if "progress" in line]
    rows = []
    before = math.nan  # the time before the first line may include the computation of initial weights
    for line in trained:
        seconds = float(line.get("seconds", math.nan))
        # The log of a resumed run may lack the time of repeated steps.
        speed = line.get("pieces", math.nan) / (seconds - before) if seconds > before else math.nan
        before = seconds
        rows.append({**line, "pieces_per_second": speed})
    return _columns(rows, max_points, leave_out=("progress", "pieces", "examples"))


def _evaluation_curves(lines: Sequence[Line], max_points: int) -> dict[str, list[float | None]]:
    """The curves of the metrics on held-out text or dev rows, by metric name without its prefix."""
    rows = [line for line in lines if "progress" not in line]
    named = [{name.partition("_")[2] or name: value for name, value in row.items()} for row in rows]
    return _columns(named, max_points)


def _columns(rows: Sequence[Line], max_points: int, leave_out: Sequence[str] = ()) -> dict[str, list[float | None]]:
    """Lists of the same length by name, with None where a metric is missing or not finite."""
    names = dict.fromkeys(name for row in rows for name in row if name not in leave_out)
    thinned = list(_thinned(rows, max_points))
    return {
        name: [
            _last_or_mean([row[name] for row in group if name in row], is_last=name in ("step", "seconds"))
            for group in thinned
        ]
        for name in names
    }


def _thinned(rows: Sequence[Line], max_points: int) -> Iterator[Sequence[Line]]:
    """Yield at most `max_points` groups of consecutive rows."""
    size = max(1, -(-len(rows) // max_points))
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _last_or_mean(values: Sequence[float], *, is_last: bool) -> float | None:
    if is_last:
        return values[-1]
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None


def _references(corpus: str | None, evaluation: Mapping[str, Any]) -> dict[str, float]:
    """The loss of random guessing and of predicting piece frequencies, for comparison with a pre-training run."""
    size, entropy = evaluation.get("vocabulary_size"), evaluation.get("unigram_entropy")
    if size is None and corpus is not None:  # an unfinished run: read its corpus, if it still exists
        try:
            facts = read_facts(Path(corpus))
        except BertmillError:
            return {}
        size, entropy = facts["vocabulary_size"], facts["statistics"]["unigram_entropy"]
    return {} if size is None or entropy is None else {"uniform": math.log(size), "unigram": entropy}


def _read_evaluation(path: Path) -> dict[str, Any]:
    """The content of evaluation.json with a sparse confusion matrix; empty if the file does not exist."""
    if not path.exists():
        return {}
    content = read_json(path)
    require_format(content.pop("format", None), 1, path)
    try:
        labels = [each["label"] for each in content.get("classes", [])]
        content |= _confusion(content.pop("confusion", []), labels)
    except (TypeError, LookupError):
        raise IntegrityError(
            "is not the evaluation of a run", where=path, remedy="restore the file, or repeat the run"
        ) from None
    return content


def _confusion(matrix: Sequence[Sequence[int]], labels: Sequence[str]) -> dict[str, Any]:
    """The nonzero cells as (expected, predicted, count), and the most confused pairs of classes."""
    cells = [
        (expected, predicted, count)
        for expected, row in enumerate(matrix)
        for predicted, count in enumerate(row)
        if count
    ]
    pairs = [
        {"expected": labels[pair.expected], "predicted": labels[pair.predicted], "count": pair.rows}
        for pair in confused_pairs(matrix)[:MAX_PAIRS]
    ]
    return {"confusion": cells if len(labels) <= MAX_CLASSES else [], "confused": pairs}
