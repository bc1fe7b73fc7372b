"""`bertmill.finetune(…)`: fine-tune from Python, on rows in files or in memory.

Rows in memory are written to RUN/rows/ before the run starts. From then on, they are files like any other: the run
records their hashes and reads them again when it is resumed.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bertmill.config.commands import FinetuneSettings
from bertmill.config.reading import problem_in_python, read_run_sources, stored_settings
from bertmill.errors import IntegrityError, UsageError
from bertmill.inference.predictor import Predictor
from bertmill.locks import locked_folder
from bertmill.rows.in_memory import to_json_lines
from bertmill.storage import write_file
from bertmill.tasks import settings_for
from bertmill.training.distributed import is_one_of_several
from bertmill.training.progress import Line, Listener
from bertmill.training.state import RunFolder
from bertmill.training.trials import finetune_once_or_more

_LOGGER = logging.getLogger("bertmill")


def finetune(
    task: str,
    model: str | Path,
    train: Any,
    dev: Any = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Predictor:
    """Fine-tune `model` on the rows `train`, and return the fine-tuned model, loaded as by `bertmill.load`.

    - `train` is the path of a file, a list of dicts, a dict of columns, or a data frame.
    - `dev` is a fraction of the training rows, or rows in any of these forms (default: a tenth, or cross-validation
      below 3,000 rows).
    - `out` is the run folder (default: runs/TASK-DATE-TIME).
    - `settings` are those of `bertmill finetune`, with underscores: `epochs=2, batch_size=16`.

    The result's `metrics` and `method` say how good the model is and how it was made.

    With `resume=True`, continues the run in `out`, or starts it. Progress is logged to the logger `bertmill`.
    """
    given: dict[str, Any] = {**settings, "task": task, "model": str(model)}
    if out is not None:
        given["out"] = out
    contents = {}
    for name, rows in {"train": train, "dev": dev}.items():
        if rows is None and name == "dev":
            continue
        if isinstance(rows, str | Path) or (name == "dev" and isinstance(rows, int | float)):
            given[name] = str(rows)
        else:
            contents[name] = to_json_lines(rows)
            given[name] = f"{name}.jsonl"  # in the run folder, whose name is not known yet
    kind = settings_for(task)
    if given.get("resume") and out is not None:
        given = {**stored_settings(kind, given), **given}
    checked = _checked(kind, given)
    run = RunFolder(checked.out)
    paths = {name: run.rows / f"{name}.jsonl" for name in contents}
    checked = checked.model_copy(update={name: type(getattr(checked, name))(path) for name, path in paths.items()})
    with _rows_in(run, {paths[name]: content for name, content in contents.items()}, resume=checked.resume):
        finetune_once_or_more(checked, _Logged())
    return Predictor(run.model, checked.device)


class _Logged(Listener):
    """Passes progress on to Python's logging."""

    def line(self, line: Line) -> None:
        _LOGGER.info(", ".join(f"{name} {value:.6g}" for name, value in line.items()))

    def remark(self, text: str) -> None:
        _LOGGER.info(text)

    def warning(self, text: str) -> None:
        _LOGGER.warning(text)


def _checked(kind: type[FinetuneSettings], given: Mapping[str, Any]) -> FinetuneSettings:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise UsageError(" · ".join(problem_in_python(kind, dict(detail)) for detail in error.errors())) from None


@contextmanager
def _rows_in(run: RunFolder, contents: Mapping[Path, bytes], *, resume: bool) -> Iterator[None]:
    """Write the rows to the run folder. If the block fails before there is a run, remove them."""
    written: list[Path] = []
    try:
        if contents:
            _write_rows(run, contents, written, resume=resume)
        yield
    except BaseException:
        if written and not run.config.exists():
            for path in written:
                path.unlink(missing_ok=True)
            with suppress(OSError):  # it is not empty
                run.rows.rmdir()
                run.path.rmdir()
        raise


def _write_rows(run: RunFolder, contents: Mapping[Path, bytes], written: list[Path], *, resume: bool) -> None:
    if is_one_of_several():
        raise UsageError("rows in memory need a single process", remedy="write them to a file")
    with locked_folder(run.path):
        is_run = run.config.exists()
        if is_run and not resume:
            return  # the run itself refuses to start again
        if not is_run:
            run.require_free()
        recorded = read_run_sources(run.path) if is_run else {}
        for path, content in contents.items():
            name = path.stem
            if is_run and recorded.get(f"{name}_sha256") != hashlib.sha256(content).hexdigest():
                what = f"the {name} data differs from what the run started with"
                raise IntegrityError(what, where=run.path, remedy="pass the same rows, or start a new run")
            if path.exists() and path.read_bytes() != content:
                raise UsageError("contains other rows", where=run.rows, remedy="remove them, or choose another folder")
            if not path.exists():
                run.rows.mkdir(exist_ok=True)
                written.append(path)
                write_file(path, content)
