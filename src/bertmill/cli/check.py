"""`bertmill check`: runs all checks of a folder and prints their results."""

from __future__ import annotations

from bertmill.cli.folders import describer_for, find_folder
from bertmill.config.commands import CheckSettings
from bertmill.errors import BertmillError, IntegrityError


def run(settings: CheckSettings) -> None:
    """Print the result of every check; IntegrityError if one fails."""
    path = find_folder(settings.folder)
    checks = describer_for(path).checks(path)
    failed = []
    for name, check in checks.items():
        try:
            print(f"ok     {name}: {check()}")
        except BertmillError as error:
            print(f"WRONG  {name}: {error}")
            failed.append(name)
    if failed:
        raise IntegrityError(f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}", where=path)
