"""`bertmill bench`: run the benchmarks and print what they measured."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
from pathlib import Path

from bertmill.bench import BENCHMARKS
from bertmill.bench.measure import Row
from bertmill.config.commands import BenchSettings
from bertmill.config.reading import unknown_name
from bertmill.errors import UsageError


def run(settings: BenchSettings) -> None:
    for name in settings.names:
        if name not in BENCHMARKS:
            raise unknown_name("benchmark", name, list(BENCHMARKS))
    data = settings.data or Path(os.environ.get("BERTMILL_DATA", "../shared/data"))
    if not data.is_dir():
        raise UsageError("there is no such folder of benchmark data", where=data, remedy="give --data or BERTMILL_DATA")
    if not settings.as_json:
        print(f"{'what':<40} {'bertmill':>10} {'rival':>10}         ratio  target  rival")
    for name in settings.names or list(BENCHMARKS):
        if not settings.quiet:
            print(f"measuring {name} …", file=sys.stderr)
        try:
            module = importlib.import_module(BENCHMARKS[name])
            for row in module.measure(settings, data):
                print(_json_line(row) if settings.as_json else _table_line(row), flush=True)
        except ModuleNotFoundError as error:
            raise UsageError(
                f"the benchmark {name} needs the package {error.name}", remedy="pip install -e '.[dev]'"
            ) from None


def _json_line(row: Row) -> str:
    return json.dumps({**dataclasses.asdict(row), "ratio": row.ratio})


def _table_line(row: Row) -> str:
    target = "" if row.target is None else f"≥ {row.target:g}"
    what = f"{row.benchmark}: {row.what}"
    return (
        f"{what:<40} {row.ours:>10,.1f} {row.theirs:>10,.1f} {row.unit:<7} {row.ratio:>5.2f}  {target:<6}  {row.rival}"
    )
