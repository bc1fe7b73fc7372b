"""`python -m benchmarks [NAME…] --data DIR`: run benchmarks and print one line per measurement.

Without names, all benchmarks run. `--data` defaults to the environment variable BERTMILL_DATA. An error is one line on
standard error; the exit code is 2 for invalid arguments and missing packages.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from benchmarks import BENCHMARKS
from benchmarks.measure import Row
from bertmill.errors import BertmillError

USAGE_ERROR = 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that `arguments` name and print their rows as a table or as JSON lines."""
    parser = _make_parser()
    given = parser.parse_intermixed_args(arguments)
    names = given.names or list(BENCHMARKS)
    for name in names:
        if name not in BENCHMARKS:
            parser.error(_unknown(name))
        for package in BENCHMARKS[name]:
            if importlib.util.find_spec(package) is None:
                parser.error(f"{name} needs the package {package}; run: pip install -e '.[bench]'")
    if not given.data:
        parser.error("no data folder; pass --data DIR or set BERTMILL_DATA")
    if not Path(given.data).is_dir():
        parser.error(f"{given.data}: no such folder; pass --data DIR or set BERTMILL_DATA")
    if not given.json:
        print(f"{'what':<40} {'bertmill':>10} {'rival':>10}         ratio  target  rival", flush=True)
    for name in names:
        print(f"measuring {name} …", file=sys.stderr)
        try:
            for row in importlib.import_module(f"benchmarks.{name}").measure(Path(given.data), given.rounds):
                print(_json_line(row) if given.json else _table_line(row), flush=True)
        except FileNotFoundError as error:
            parser.error(f"{name} needs the file {error.filename}")
        except BertmillError as error:
            parser.exit(error.exit_code, f"{parser.prog}: {name}: {error}\n")


def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="benchmarks", description="Measure bertmill against other tools on this machine and print the ratios."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(BENCHMARKS)}")
    parser.add_argument(
        "--data",
        metavar="DIR",
        default=os.environ.get("BERTMILL_DATA"),
        help="folder of the benchmark data (default: the environment variable BERTMILL_DATA)",
    )
    parser.add_argument(
        "--rounds",
        type=_positive,
        metavar="N",
        default=3,
        help="rounds of alternating measurements; the best of each tool counts (default: 3)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per measurement instead of a table")
    return parser


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1 (got {text!r})")
    return number


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, BENCHMARKS, n=1)
    suggestion = f"did you mean {close[0]}?" if close else f"choose from {', '.join(BENCHMARKS)}"
    return f"unknown benchmark {name!r}; {suggestion}"


def _json_line(row: Row) -> str:
    return json.dumps({**dataclasses.asdict(row), "ratio": row.ratio})


def _table_line(row: Row) -> str:
    target = "" if row.target is None else f"≥ {row.target:g}"
    what = f"{row.benchmark}: {row.what}"
    return (
        f"{what:<40} {row.ours:>10,.1f} {row.theirs:>10,.1f} {row.unit:<7} {row.ratio:>5.2f}  {target:<6}  {row.rival}"
    )


if __name__ == "__main__":
    main()
