"""`bertmill download`: downloads a model from the Hugging Face hub and prints its folder."""

from __future__ import annotations

import shutil

from bertmill.checkpoint.names import find_model
from bertmill.config.commands import DownloadSettings
from bertmill.errors import UsageError
from bertmill.storage import MANIFEST, new_folder
from bertmill.text.printable import escaped

_SUFFIXES = (".json", ".safetensors", ".txt")  # other programs may have cached pickle files as well


def run(settings: DownloadSettings) -> None:
    """Download the model; with `out`, copy its files there."""
    if settings.out is not None and settings.out.exists():
        raise UsageError("already exists", where=settings.out, remedy="choose another name or remove it first")
    folder = find_model(settings.name, settings.revision)
    if settings.out is not None:
        with new_folder(settings.out) as temporary:
            for path in folder.iterdir():
                if path.suffix in _SUFFIXES and path.name != MANIFEST:  # a manifest of this folder is written
                    shutil.copyfile(path, temporary / path.name)
        folder = settings.out
    print(escaped(str(folder)))
