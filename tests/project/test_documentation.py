"""Run every command in the README and the docs, and compare its output with the page.

- A `console` block contains commands after `$ `, each followed by its output. `…` matches any text in the output, and a
  line with only `…` matches any lines.
- A `python` block runs as a script.
- A block that takes more than 30 s has `<!-- slow -->` on the previous line and runs in `make slow`.
- README.zh.md shows the same blocks as README.md, which run only once.

Plain `bertmill` and `python -c` commands run in this process, also on several lines or with `|| true` or `|| echo "exit
code $?"` after them, and so do `python` blocks. All other commands run in a shell.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import program

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "README.zh.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"(<!-- slow -->\n)?^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# These run the tests or install packages. The test only checks that they exist.
NOT_RUN_HERE = {"make test", "make check", "make slow", "make bench", "make docs"}
SHOW_CODE = 'echo "exit code $?"'
# Plain and quoted words, with nothing that a shell would expand, redirect or execute.
PLAIN = re.compile(r"""(bertmill|python -c) ([\w ./:=+,@%-]|'[^']*'|"[^"$`\\!]*")*""")


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
        if block.page != "README.zh.md"
    ]


@pytest.mark.parametrize("block", parameters())
def test_commands_print_the_output_on_the_page(block: Block, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    if "BERTMILL_DATA" in block.content or "-m benchmarks" in block.content:
        environment["BERTMILL_DATA"] = str(request.getfixturevalue("data"))
    if "examples/" in block.content:
        shutil.copytree(ROOT / "examples", tmp_path / "examples")
    if block.kind == "python":
        run_python(block.content, tmp_path, environment)
        return
    for command, expected in commands(block.content):
        if command in NOT_RUN_HERE:
            assert f"\n{command.split()[1]}:" in (ROOT / "Makefile").read_text()
            continue
        done = run_command(command, tmp_path, environment)
        output = done.stdout + done.stderr
        assert re.fullmatch(pattern_of(expected), output.strip()), f"$ {command}\n{output}"
        assert done.returncode == 0, f"$ {command}\n{output}"


def run_command(command: str, folder: Path, environment: dict[str, str]) -> program.Result:
    tried, otherwise = split_alternative(command)
    if is_plain(tried):
        done = run_plain(tried, folder, environment)
        if otherwise is None or done.returncode == 0:
            return done
        shown = f"exit code {done.returncode}\n" if otherwise == SHOW_CODE else ""
        return program.Result(done.args, 0, done.stdout + shown, done.stderr)
    outside_make = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT if command.startswith(("make ", "python -m benchmarks")) else folder,
        env=outside_make | environment,
        capture_output=True,
        text=True,
    )


def split_alternative(command: str) -> tuple[str, str | None]:
    """Split a command, written on one line, and what a shell runs instead of failing, if that is a known command."""
    command = command.replace("\\\n", " ")
    tried, bars, otherwise = command.partition(" || ")
    return (tried, otherwise) if bars and otherwise in ("true", SHOW_CODE) else (command, None)


def run_plain(command: str, folder: Path, environment: dict[str, str]) -> program.Result:
    name, *words = shlex.split(command)
    if name == "bertmill":
        return program.run_here(words, folder, environment=environment)
    return run_python(words[1], folder, environment)


def run_python(code: str, folder: Path, environment: dict[str, str]) -> program.Result:
    return program.capture(lambda: exec(code, {"__name__": "__main__"}), folder, environment=environment)


def is_plain(command: str) -> bool:
    """Whether the command can run without a shell."""
    return PLAIN.fullmatch(command) is not None


def commands(content: str) -> list[tuple[str, str]]:
    """Return the commands of a console block with their expected outputs."""
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


def test_a_different_output_does_not_match() -> None:
    assert re.fullmatch(pattern_of("a\n…\nb 1 … 2"), "a\nx\ny\nb 1 x 2")
    assert not re.fullmatch(pattern_of("a\nb"), "a\nc")


@pytest.mark.parametrize(
    ("command", "plain"),
    [
        ('bertmill tokenize --model minilm --text "Zoë\'s café"', True),
        ("bertmill fill run/model 'a [MASK] | b' --top-k 2", True),
        ("python -c \"print('a')\"", True),
        ("python -c \"print('$a')\"", False),
        ("bertmill inspect zh | grep words", False),
        ("bertmill vocab *.txt --out v", False),
        ("bertmill check $FOLDER", False),
        ("bertmill check a; rm a", False),
        ("bertmill check a\nrm a", False),
        ("python -c 'print()' > a.txt", False),
        ("bertmill check \\\n  a", False),
        ("make demo", False),
    ],
)
def test_only_plain_commands_run_without_a_shell(command: str, plain: bool) -> None:
    assert is_plain(command) == plain


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("bertmill check a", ("bertmill check a", None)),
        ("bertmill check a || true", ("bertmill check a", "true")),
        ('bertmill check \\\n    a || echo "exit code $?"', ("bertmill check      a", 'echo "exit code $?"')),
        ("bertmill check a || rm a", ("bertmill check a || rm a", None)),
        ("bertmill check a || true; rm a", ("bertmill check a || true; rm a", None)),
    ],
)
def test_alternatives_and_line_ends_are_split_off(command: str, parts: tuple[str, str | None]) -> None:
    assert split_alternative(command) == parts
    assert is_plain(split_alternative(command)[0]) == (" rm" not in command)


@pytest.mark.parametrize("command", ["bertmill check absent", "bertmill tokenize --model minilm --text a"])
@pytest.mark.parametrize("ending", [" || true", ' || echo "exit code $?"'])
def test_alternatives_have_the_same_result_as_in_a_shell(command: str, ending: str, tmp_path: Path) -> None:
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    here = run_command(command + ending, tmp_path, environment)
    there = subprocess.run(
        ["bash", "-c", command + ending], cwd=tmp_path, env=os.environ | environment, capture_output=True
    )
    assert (here.returncode, here.stdout, here.stderr) == (0, there.stdout.decode(), there.stderr.decode())


def test_both_readmes_show_the_same_commands() -> None:
    english, chinese = ([b.content for b in blocks() if b.page == page] for page in ("README.md", "README.zh.md"))
    assert english == chinese
    assert english


def test_every_block_has_a_known_kind() -> None:
    for page in PAGES:
        for number, fence in enumerate(re.findall(r"^\s*```(.*)$", page.read_text(), re.MULTILINE)):
            assert fence in ([""] if number % 2 else ["console", "python", "text", "toml"]), page
