"""Models on the Hugging Face Hub: find them in the local cache, or download them.

Downloads only the model and tokenizer files, with weights as safetensors. huggingface_hub transfers them: it resumes
broken transfers, but not those of an earlier process, and reads HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE and the token.
Each file must have the hash that the Hub announces. config.json comes last, so a branch refers to a new snapshot only
once it is complete.

Other programs may have cached only some of the files. A cached model is usable if it has settings, weights and a
tokenizer, and complete if it is also known which optional files exist; the library records those that do not.
"""

from __future__ import annotations

import hashlib
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bertmill.checkpoint.files import (
    CONFIG_FILE,
    INDEX_FILE,
    METADATA_FILE,
    PICKLED_FILE,
    TOKENIZER_FILES,
    VOCABULARY_FILES,
    WEIGHTS_FILE,
    weight_files,
)
from bertmill.checkpoint.hub_errors import check_endpoint, hub_errors, no_model, transfer_errors
from bertmill.errors import BertmillError, IntegrityError, MissingError, ResourceError, UsageError
from bertmill.storage import MANIFEST

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

DEFAULT_REVISION = "main"
OPTIONAL_FILES = (*TOKENIZER_FILES, "special_tokens_map.json", METADATA_FILE, MANIFEST)

logger = logging.getLogger("bertmill")

_PART = r"[A-Za-z0-9_](?:[\w.-]*\w)?"
_REPOSITORY = re.compile(rf"(?!.*(?:--|\.\.|\.git\Z))(?=.{{1,96}}\Z){_PART}(?:/{_PART})?", re.ASCII)
_REVISION = re.compile(r"(?!.*\.\.)\w[\w./-]{0,254}", re.ASCII)


def is_repository(name: str) -> bool:
    """Whether `name` is a valid name on the Hub, such as `bert-base-uncased` or `google/bert_uncased_L-2_H-128_A-2`."""
    return _REPOSITORY.fullmatch(name) is not None


def cached_model(name: str, revision: str | None = None, cache_dir: str | Path | None = None) -> Path | None:
    """The folder of a model in the Hugging Face cache, or None if it is not there or incomplete."""
    folder = cached_folder(name, revision, cache_dir)
    if folder is None or not _is_usable(folder):
        return None
    from huggingface_hub import try_to_load_from_cache

    found = (try_to_load_from_cache(name, each, cache_dir=cache_dir, revision=folder.name) for each in OPTIONAL_FILES)
    return folder if all(each is not None for each in found) else None


def cached_folder(name: str, revision: str | None, cache_dir: str | Path | None) -> Path | None:
    """The folder of a cached model, of which only the settings are sure to be there, or None."""
    check_endpoint()
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, CONFIG_FILE, cache_dir=cache_dir, revision=_valid_revision(revision))
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    for path in folder.iterdir():
        _refuse_link_out(path, cache_dir)
    return folder


def _is_usable(folder: Path) -> bool:
    return _has_weights(folder) and any((folder / each).is_file() for each in VOCABULARY_FILES)


def download_model(
    name: str,
    revision: str | None = None,
    *,
    installed: str = "",
    cache_dir: str | Path | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
) -> Path:
    """Download a model and return its folder in the cache. `installed` lists the installed models, for errors.

    If the Hub cannot be asked which optional files exist, returns a usable folder from the cache. If nothing may be
    downloaded, settings and weights are enough.
    """
    from huggingface_hub import constants

    revision = _valid_revision(revision)
    cached = cached_folder(name, revision, cache_dir)
    if local_files_only or constants.HF_HUB_OFFLINE:
        if cached is not None and _has_weights(cached):
            return cached
        if cached is not None and (cached / PICKLED_FILE).is_file():
            raise _only_pickled(f"the cache has {name!r} with")
        reason, change = ("HF_HUB_OFFLINE", "unset HF_HUB_OFFLINE")
        if local_files_only:
            reason, change = ("local_files_only", "pass local_files_only=False")
        raise MissingError(f"{no_model(name)}, and {reason} is set", remedy=f"{installed}{change} to download it")
    usable = cached if cached is not None and _is_usable(cached) else None
    try:
        with hub_errors(name, revision, installed), _progress():
            # A usable folder is completed, not replaced by the newest commit.
            return _download(name, revision if usable is None else usable.name, cache_dir, token)
    except (MissingError, ResourceError):
        if usable is None:
            raise
        message = "using the cached files of %s; %s cannot be asked whether optional files are missing"
        logger.warning(message, name, constants.ENDPOINT)
        return usable


def _download(name: str, revision: str, cache_dir: str | Path | None, token: str | bool | None) -> Path:
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache

    info = _model_info(name, revision, token)
    files = _needed_files(name, info)
    if not all(map(_announced_hash, files)):
        what = f"{constants.ENDPOINT} does not announce the hashes of files, so a download cannot be verified"
        raise ResourceError(what, remedy="set HF_ENDPOINT to another server")
    num_bytes = sum(
        each.size or 0
        for each in files
        if try_to_load_from_cache(name, each.rfilename, cache_dir=cache_dir, revision=info.sha) is None
    )
    if num_bytes:
        logger.warning("downloading %s (%s) from %s", name, _size(num_bytes), constants.ENDPOINT)
    _record_missing_files(name, info, cache_dir, token)
    for each in files:
        version = revision if each.rfilename == CONFIG_FILE else info.sha
        with transfer_errors(name, each.rfilename):
            path = Path(hf_hub_download(name, each.rfilename, revision=version, cache_dir=cache_dir, token=token))
        _refuse_link_out(path, cache_dir)
        _require_hash(path, each)  # also of cached files: a download may have been killed before this check
    if path.parent.name != info.sha:
        raise ResourceError(f"the model {name!r} changed during the download", remedy="try again")
    return path.parent


def _model_info(name: str, revision: str, token: str | bool | None) -> ModelInfo:
    from huggingface_hub import HfApi, constants

    try:
        info = HfApi(token=token).model_info(
            name, revision=revision, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT
        )
        is_valid = re.fullmatch(r"[0-9a-f]{40}", info.sha or "") is not None
    except (AttributeError, KeyError, TypeError):  # JSON without the expected keys and types
        is_valid = False
    if not is_valid:
        raise ResourceError(f"the answer of {constants.ENDPOINT} is not that of a Hugging Face Hub")
    return info


def _record_missing_files(name: str, info: ModelInfo, cache_dir: str | Path | None, token: str | bool | None) -> None:
    """Request the optional files that the repository does not have, so that the library records that in the cache."""
    from huggingface_hub import errors, hf_hub_download, try_to_load_from_cache

    existing = {each.rfilename for each in info.siblings or ()}
    for each in OPTIONAL_FILES:
        if each in existing or try_to_load_from_cache(name, each, cache_dir=cache_dir, revision=info.sha) is not None:
            continue
        with suppress(errors.RemoteEntryNotFoundError), transfer_errors(name, each):
            hf_hub_download(name, each, revision=info.sha, cache_dir=cache_dir, token=token)


def _valid_revision(revision: str | None) -> str:
    revision = DEFAULT_REVISION if revision is None else revision
    if not _REVISION.fullmatch(revision):
        raise UsageError(f"{revision!r} is not a valid revision", remedy="use a branch, a tag or a commit hash")
    return revision


def _refuse_link_out(path: Path, cache_dir: str | Path | None) -> None:
    """Raise IntegrityError if a file of a snapshot is a link to a file outside the cache.

    The folder of a model in the cache may itself be a link, for example to another disk.
    """
    from huggingface_hub import constants

    allowed = Path(cache_dir or constants.HF_HUB_CACHE), path.parents[2]  # MODEL/snapshots/COMMIT/FILE
    target = path.resolve()
    if not any(target.is_relative_to(folder.resolve()) for folder in allowed):
        raise IntegrityError("is a link to a file outside the Hugging Face cache", where=path, remedy="remove it")


def _has_weights(folder: Path) -> bool:
    try:
        return bool(weight_files(folder))
    except BertmillError:
        return False


def _needed_files(name: str, info: ModelInfo) -> list[RepoSibling]:
    """The files of the model and its tokenizer, config.json last."""
    files = {each.rfilename: each for each in info.siblings or ()}
    if CONFIG_FILE not in files:
        raise MissingError(f"the repository {name!r} has no {CONFIG_FILE}, so it does not contain a model")
    if WEIGHTS_FILE in files:
        weights = [WEIGHTS_FILE]
    elif INDEX_FILE in files:
        weights = [INDEX_FILE, *sorted(each for each in files if re.fullmatch(r"model-\d+-of-\d+\.safetensors", each))]
    else:
        where = f"the repository {name!r} has"
        raise _only_pickled(where) if PICKLED_FILE in files else MissingError(f"{where} no weights")
    if not any(each in files for each in VOCABULARY_FILES):
        raise MissingError(f"the repository {name!r} has no tokenizer ({' or '.join(VOCABULARY_FILES)})")
    names = [*weights, *OPTIONAL_FILES, CONFIG_FILE]
    return [files[each] for each in names if each in files]


def _only_pickled(where: str) -> MissingError:
    remedy = (
        "convert it with transformers: AutoModel.from_pretrained(NAME).save_pretrained(FOLDER), "
        "then the same with AutoTokenizer"
    )
    return MissingError(f"{where} only {PICKLED_FILE}, a pickle file, which could run code", remedy=remedy)


def _announced_hash(file: RepoSibling) -> str | None:
    return file.blob_id if file.lfs is None else file.lfs.sha256


def _require_hash(path: Path, file: RepoSibling) -> None:
    """Remove a downloaded file and raise IntegrityError unless it has the announced hash (git's for small files)."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size) if file.lfs is None else hashlib.sha256()
    with path.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != _announced_hash(file):
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        what = f"{file.rfilename} does not have the hash that the Hub announces, and was removed"
        raise IntegrityError(what, where=path.parent, remedy="try again")


@contextmanager
def _progress() -> Iterator[None]:
    """Show the progress bars of huggingface_hub only on a terminal, and not if messages are turned off."""
    from huggingface_hub.utils.tqdm import disable_progress_bars

    is_shown = sys.stderr.isatty() and logger.isEnabledFor(logging.WARNING)
    with nullcontext() if is_shown else disable_progress_bars():
        yield


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:,.1f} kB"
