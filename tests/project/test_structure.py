"""The source matches docs/architecture.md, and files and functions are short enough to read."""

import ast
import re
from pathlib import Path

import bertmill

SOURCE = Path(bertmill.__file__).parent
PAGE = (Path(__file__).parent.parent.parent / "docs/architecture.md").read_text(encoding="utf-8")
GENERATED = {"character_table.py"}
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_TREE_LINES = 50


def source_files() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if path.name not in GENERATED]


def test_the_tree_names_every_source_file_in_at_most_50_lines() -> None:
    match = re.search(r"## The tree.*?```text\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    tree = match[1]
    assert len(tree.splitlines()) <= MAX_TREE_LINES
    unnamed = {"__init__", "__main__", "version"}
    stems = {path.stem for path in SOURCE.rglob("*.py")} - unnamed
    assert not {stem for stem in stems if not re.search(rf"\b{stem}\b", tree)}


def test_the_walks_name_existing_files() -> None:
    walks = PAGE.split("## Two walkthroughs")[1].split("## ")[0]
    counts = []
    for walk in re.findall(r"\((\d+) files\): (.*?)\.\n", walks, re.DOTALL):
        files = re.findall(r"`([\w/]+)`", walk[1])
        counts.append(len(files))
        assert int(walk[0]) == len(set(files)) == len(files)
        assert not [name for name in files if not (SOURCE / f"{name}.py").exists()]
    assert len(counts) == 2
    assert counts[0] <= 25
    assert counts[1] <= 35


def test_files_and_functions_are_short() -> None:
    too_long = []
    for path in source_files():
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > MAX_FILE_LINES:
            too_long.append(str(path))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES:
                too_long.append(f"{path}: {node.name}")
    assert not too_long


# Tests of several modules together, and of registries, which are packages.
ACROSS_MODULES = {
    "corpus/objectives/test_objectives.py",
    "model/test_compile.py",
    "tasks/test_registry.py",
    "training/test_resume.py",
}


def test_tests_mirror_the_source() -> None:
    tests = Path(__file__).parent.parent
    misplaced = []
    for path in tests.rglob("test_*.py"):
        place = path.relative_to(tests)
        if place.parts[0] in ("project", "benchmarks") or place.as_posix() in ACROSS_MODULES:
            continue
        modules = [module.stem for module in (SOURCE / place.parent).glob("*.py")]
        if not any(re.fullmatch(rf"test_{module}(_\w+)?", place.stem) for module in modules):
            misplaced.append(place.as_posix())
    assert not misplaced


def test_only_one_function_prints_to_standard_error() -> None:
    """Others would fail, or report a wrong error, if standard error is closed or full."""
    others = [path for path in source_files() if path.name != "streams.py"]
    assert not [path for path in others if "file=sys.stderr" in path.read_text(encoding="utf-8")]
