"""The import arrows of docs/architecture.md: a room imports only rooms that stand before it."""

import ast
import subprocess
import sys
from pathlib import Path

import bertmill

SOURCE = Path(bertmill.__file__).parent
# Rooms in the order in which they may import; rooms of one set do not import each other.
ORDER = [
    {"version"},
    {"errors"},
    {"storage"},
    {"config", "machine", "randomness"},
    {"parallel"},
    {"checkpoint"},
    {"text", "model"},
    {"corpus"},
    {"tasks"},
    {"inference"},
    {"training"},
    {"report"},
    {"serving", "lab", "demo"},
    {"cli"},
    {"__init__", "__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}


def room_of(parts: tuple[str, ...]) -> str:
    return parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
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
        rooms |= {name.split(".")[1] for name in names if name.startswith("bertmill.")}
    return rooms


def test_every_import_points_to_a_room_that_stands_before() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        room = room_of(path.relative_to(SOURCE).parts)
        assert room in LEVEL, f"{room} has no place in the order"
        for other in imported_rooms(path) - {room}:
            if LEVEL[other] >= LEVEL[room]:
                wrong.append(f"{path.relative_to(SOURCE)} imports {other}")
    assert not wrong


def test_no_file_has_a_name_that_says_nothing() -> None:
    empty_names = {"utils", "util", "common", "helpers", "misc"}
    assert not [path for path in SOURCE.rglob("*") if path.stem in empty_names]


def test_neither_settings_nor_the_tokenizer_import_torch() -> None:
    code = "import sys, bertmill.config, bertmill.text.tokenizer, bertmill.text.files; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
