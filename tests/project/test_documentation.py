"""Every command in the README and the docs is run, and prints what the page says it prints.

A `console` block holds commands after `$ ` and, below each, its output; `…` stands for any text, a line of
only `…` for any lines. A `python` block is run as a script. A block that takes over 30 s has `<!-- slow -->`
on the line before it and runs in `make slow`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "README.zh.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"(<!-- slow -->\n)?^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# These run the tests or install things; that they exist is checked instead.
NOT_RUN_HERE = {"make test", "make check", "make slow", "make bench", "make docs"}


class Block(NamedTuple):
    page: str
    line: int
    kind: str
    content: str
    is_slow: bool


def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(page.name, line, match[2], match[3], match[1] is not None))
    return found


def parameters() -> list:  # type: ignore[type-arg]
    return [
        pytest.param(block, id=f"{block.page}:{block.line}", marks=[pytest.mark.slow] if block.is_slow else [])
        for block in blocks()
    ]


@pytest.mark.parametrize("block", parameters())
def test_what_a_page_shows_is_what_happens(block: Block, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    outside_make = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment = outside_make | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    if "BERTMILL_DATA" in block.content or "bertmill bench" in block.content:
        environment["BERTMILL_DATA"] = str(request.getfixturevalue("data"))
    if block.kind == "python":
        subprocess.run([sys.executable, "-c", block.content], check=True, cwd=tmp_path, env=environment)
        return
    for command, expected in commands(block.content):
        if command in NOT_RUN_HERE:
            assert f"\n{command.split()[1]}:" in (ROOT / "Makefile").read_text()
            continue
        folder = ROOT if command.startswith("make ") else tmp_path
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
        output = done.stdout + done.stderr
        assert re.fullmatch(pattern_of(expected), output.strip()), f"$ {command}\n{output}"
        assert done.returncode == 0, f"$ {command}\n{output}"


def commands(content: str) -> list[tuple[str, str]]:
    """(command, expected output) of a console block."""
    parts = re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]
    pairs = []
    for part in parts:
        lines = part.split("\n")
        while lines[0].endswith("\\"):
            lines[:2] = [lines[0] + "\n" + lines[1]]
        pairs.append((lines[0], "\n".join(lines[1:]).strip()))
    return pairs


def pattern_of(expected: str) -> str:
    lines = []
    for line in expected.split("\n"):
        lines.append("(.|\n)*" if line == "…" else re.escape(line.rstrip()).replace("…", ".*") + "[ ]*")
    return "\n".join(lines)


def test_a_wrong_output_would_be_noticed() -> None:
    assert re.fullmatch(pattern_of("a\n…\nb 1 … 2"), "a\nx\ny\nb 1 x 2")
    assert not re.fullmatch(pattern_of("a\nb"), "a\nc")


def test_both_readmes_show_the_same_commands() -> None:
    english, chinese = ([b.content for b in blocks() if b.page == page] for page in ("README.md", "README.zh.md"))
    assert english == chinese
    assert english


def test_every_source_file_stands_in_the_tree_of_the_readme() -> None:
    tree = (ROOT / "README.md").read_text().split("## The tree")[1]
    source = ROOT / "src/bertmill"
    names = [path.relative_to(source) for path in source.rglob("*.py") if path.name != "__init__.py"]
    missing = [str(name) for name in names if not re.search(rf"\b{re.escape(name.name)}\b", tree)]
    assert not missing


def test_no_block_escapes_by_its_kind() -> None:
    for page in PAGES:
        for number, fence in enumerate(re.findall(r"^\s*```(.*)$", page.read_text(), re.MULTILINE)):
            assert fence in ([""] if number % 2 else ["console", "python", "text", "toml"]), page
