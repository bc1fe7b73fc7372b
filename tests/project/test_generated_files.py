"""Files that are generated are what their generators write today."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_character_table_is_what_its_generator_writes() -> None:
    generator = runpy.run_path(str(ROOT / "tools/make_character_table.py"))
    assert generator["TABLE"].read_text(encoding="utf-8") == generator["make_table"]()


def test_the_command_reference_is_what_its_generator_writes() -> None:
    generator = runpy.run_path(str(ROOT / "tools/make_command_reference.py"))
    assert generator["REFERENCE"].read_text(encoding="utf-8") == generator["make_reference"]()
