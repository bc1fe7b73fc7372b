"""`bertmill check`: runs all checks of a folder and prints their results.

With --accept, the hashes are not compared: a folder that passes all other checks gets a new manifest.
"""

from __future__ import annotations

from bertmill.checkpoint.names import find_model_or_file
from bertmill.cli.folders import describer_for
from bertmill.config.commands import CheckSettings
from bertmill.corpus.facts import is_corpus
from bertmill.errors import BertmillError, IntegrityError, UsageError
from bertmill.storage import MANIFEST
from bertmill.text.printable import escaped


def run(settings: CheckSettings) -> None:
    """Print the result of every check; IntegrityError if one fails."""
    path = find_model_or_file(settings.folder)
    if settings.accept and (path.is_file() or is_corpus(path)):
        raise UsageError("--accept needs a model or vocabulary folder", where=path)
    describer = describer_for(path)
    checks = describer.checks(path)
    if settings.accept:
        del checks["hashes"]
    failed = []
    for name, check in checks.items():
        try:
            print(escaped(f"ok     {name}: {check()}"))
        except BertmillError as error:
            print(escaped(f"FAILED {name}: {error}"))
            failed.append(name)
    if failed:
        raise IntegrityError(f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}", where=path)
    if settings.accept:
        describer.accept(path)
        print(f"accepted: {MANIFEST} now has the hashes of the files")
