"""Imports follow the order in docs/architecture.md: a package only imports earlier packages."""

import ast
import subprocess
import sys
from pathlib import Path

import bertmill

SOURCE = Path(bertmill.__file__).parent
# Packages in import order. Packages in the same set do not import each other.
ORDER = [
    {"version"},
    {"errors"},
    {"storage"},
    {"locks"},
    {"config", "machine", "randomness"},
    {"parallel"},
    {"checkpoint"},
    {"text", "model"},
    {"accelerated"},
    {"corpus"},
    {"rows"},
    {"batching"},
    {"tasks"},
    {"inference"},
    {"training"},
    {"report"},
    {"serving", "lab", "demo"},
    {"cli"},
    {"__init__", "__main__"},
]
LEVEL = {package: level for level, packages in enumerate(ORDER) for package in packages}


def package_of(parts: tuple[str, ...]) -> str:
    return parts[0].removesuffix(".py")


def imported_packages(path: Path) -> set[str]:
    packages = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
            if node.module == "bertmill":
                names = [f"bertmill.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        packages |= {name.split(".")[1] for name in names if name.startswith("bertmill.")}
    return packages


def test_packages_only_import_earlier_packages() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        package = package_of(path.relative_to(SOURCE).parts)
        assert package in LEVEL, f"{package} has no place in the order"
        for other in imported_packages(path) - {package}:
            if LEVEL[other] >= LEVEL[package]:
                wrong.append(f"{path.relative_to(SOURCE)} imports {other}")
    assert not wrong


def test_no_file_has_a_generic_name() -> None:
    generic_names = {"utils", "util", "common", "helpers", "misc"}
    assert not [path for path in SOURCE.rglob("*") if path.stem in generic_names]


def test_settings_rows_registries_the_tokenizer_and_reports_do_not_import_torch() -> None:
    modules = (
        "bertmill.config.reading, bertmill.text.tokenizer, bertmill.rows.columns, bertmill.rows.split, bertmill.tasks"
    )
    more = "bertmill.corpus.objectives, bertmill.cli.report"
    code = f"import sys, {modules}, {more}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_loading_a_model_does_not_import_the_compiler_of_torch() -> None:
    """It takes a second."""
    code = (
        "import sys, bertmill; bertmill.BertModel.from_pretrained('minilm'); sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
