"""Generated files are up to date."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_character_table_is_up_to_date() -> None:
    generator = runpy.run_path(str(ROOT / "tools/make_character_table.py"))
    assert generator["TABLE"].read_text(encoding="utf-8") == generator["make_table"]()


def test_the_command_reference_is_up_to_date() -> None:
    generator = runpy.run_path(str(ROOT / "tools/make_command_reference.py"))
    assert generator["REFERENCE"].read_text(encoding="utf-8") == generator["make_reference"]()
