"""Models of the Hugging Face hub: find them in the local cache, or download them.

Only the files of a model and its tokenizer are downloaded, with weights as safetensors. huggingface_hub transfers them:
it resumes broken transfers and reads HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE and the token. Each file must have the hash
that the hub announces. config.json comes last, so a branch refers to a new snapshot only once it is complete.
"""

from __future__ import annotations

import hashlib
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from bertmill.errors import BertmillError, IntegrityError, MissingError, ResourceError, UsageError
from bertmill.storage import read_json

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

DEFAULT_REVISION = "main"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
PICKLED_FILE = "pytorch_model.bin"
CONFIG_FILE = "config.json"
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt")  # one of them is required
OTHER_FILES = ("tokenizer_config.json", "special_tokens_map.json", "bertmill.json", "manifest.json")

logger = logging.getLogger("bertmill")

_REMEDIES = {  # for HTTP statuses
    401: "check HF_TOKEN",
    403: "check that HF_TOKEN gives access to this model",
    429: "wait a few minutes, or set HF_TOKEN for a higher limit",
}
_PART = r"[A-Za-z0-9_](?:[\w.-]*\w)?"
_REPOSITORY = re.compile(rf"(?!.*(?:--|\.\.))(?=.{{1,96}}\Z){_PART}(?:/{_PART})?", re.ASCII)
_REVISION = re.compile(r"(?!.*\.\.)\w[\w./-]{0,254}", re.ASCII)


def is_repository(name: str) -> bool:
    """Whether `name` is a valid name on the hub, such as `bert-base-uncased` or `google/bert_uncased_L-2_H-128_A-2`."""
    return _REPOSITORY.fullmatch(name) is not None


def cached_model(name: str, revision: str | None = None, cache_dir: str | Path | None = None) -> Path | None:
    """The folder of a model in the cache of the hub, or None if it is not there or incomplete."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, CONFIG_FILE, cache_dir=cache_dir, revision=_valid_revision(revision))
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    _refuse_links_out(folder, cache_dir)
    is_complete = _has_weights(folder) and any((folder / each).is_file() for each in TOKENIZER_FILES)
    return folder if is_complete else None


def download_model(
    name: str,
    revision: str | None = None,
    *,
    installed: str = "",
    cache_dir: str | Path | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
) -> Path:
    """Download a model and return its folder in the cache. `installed` lists the installed models, for errors."""
    from huggingface_hub import HfApi, constants, hf_hub_download, try_to_load_from_cache

    revision = _valid_revision(revision)
    reason = "local_files_only" if local_files_only else "HF_HUB_OFFLINE" if constants.HF_HUB_OFFLINE else None
    if reason:
        remedy = f"{installed}unset {reason} to look for it on the hub"
        raise MissingError(f"{_no_model(name)}, and {reason} is set", remedy=remedy)
    with _hub_errors(name, revision, installed), _progress():
        info = HfApi(token=token).model_info(name, revision=revision, files_metadata=True)
        files = _needed_files(name, info)
        is_cached = {
            each.rfilename: isinstance(
                try_to_load_from_cache(name, each.rfilename, cache_dir=cache_dir, revision=info.sha), str
            )
            for each in files
        }
        num_bytes = sum(each.size or 0 for each in files if not is_cached[each.rfilename])
        if num_bytes:
            logger.warning("downloading %s (%s) from %s", name, _size(num_bytes), constants.ENDPOINT)
        for each in files:
            is_last = each.rfilename == CONFIG_FILE
            version = revision if is_last else info.sha
            path = Path(hf_hub_download(name, each.rfilename, revision=version, cache_dir=cache_dir, token=token))
            if not is_cached[each.rfilename]:
                _require_hash(path, each)
    _refuse_links_out(path.parent, cache_dir)  # files that were there already
    return path.parent


def _no_model(name: str) -> str:
    return f"there is no model folder {name!r}, no installed or cached model of that name"


def _valid_revision(revision: str | None) -> str:
    revision = DEFAULT_REVISION if revision is None else revision
    if not _REVISION.fullmatch(revision):
        raise UsageError(f"{revision!r} is not a valid revision", remedy="use a branch, a tag or a commit hash")
    return revision


def _refuse_links_out(folder: Path, cache_dir: str | Path | None) -> None:
    """Raise IntegrityError if a file in `folder` is a link to a file outside the cache."""
    from huggingface_hub import constants

    cache = Path(cache_dir or constants.HF_HUB_CACHE).resolve()
    for path in folder.iterdir():
        if not path.resolve().is_relative_to(cache):
            raise IntegrityError("is a link to a file outside the cache of the hub", where=path, remedy="remove it")


def _has_weights(folder: Path) -> bool:
    if (folder / WEIGHTS_FILE).is_file():
        return True
    if not (folder / INDEX_FILE).is_file():
        return False
    shards = read_json(folder / INDEX_FILE).get("weight_map")
    names = {name for name in shards.values() if isinstance(name, str)} if isinstance(shards, dict) else set()
    return bool(names) and all(Path(name).name == name and (folder / name).is_file() for name in names)


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
        found = f"only {PICKLED_FILE}, a pickle file, which could run code" if PICKLED_FILE in files else "no weights"
        remedy = (
            "convert it with transformers: AutoModel.from_pretrained(NAME).save_pretrained(FOLDER), "
            "then the same with AutoTokenizer"
        )
        raise MissingError(f"the repository {name!r} has {found}", remedy=remedy if PICKLED_FILE in files else None)
    names = [*weights, *TOKENIZER_FILES, *OTHER_FILES, CONFIG_FILE]
    return [files[each] for each in names if each in files]


def _require_hash(path: Path, file: RepoSibling) -> None:
    """Remove a downloaded file and raise IntegrityError unless it has the announced hash (git's for small files)."""
    if file.lfs is not None:
        digest, expected = hashlib.sha256(), file.lfs.sha256
    else:
        digest, expected = hashlib.sha1(b"blob %d\0" % path.stat().st_size), file.blob_id or ""
    with path.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != expected:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        what = f"{file.rfilename} does not have the hash that the hub announces, and was removed"
        raise IntegrityError(what, where=path.parent, remedy="try again")


@contextmanager
def _hub_errors(name: str, revision: str, installed: str) -> Iterator[None]:
    """Convert errors of huggingface_hub into one clear line."""
    from huggingface_hub import constants, errors

    network_errors = (errors.HTTPError, ConnectionError, TimeoutError)  # type: ignore[attr-defined]
    try:
        yield
    except BertmillError:
        raise
    except errors.GatedRepoError:
        remedy = f"accept its terms on {constants.ENDPOINT}/{name}, then set HF_TOKEN"
        raise MissingError(f"the model {name!r} is gated", remedy=remedy) from None
    except errors.RepositoryNotFoundError:
        what = f"{_no_model(name)}, and no public model on {constants.ENDPOINT}"
        raise MissingError(what, remedy=f"{installed}if it is private, set HF_TOKEN") from None
    except errors.RevisionNotFoundError:
        raise MissingError(f"the model {name!r} has no revision {revision!r}") from None
    except errors.HfHubHTTPError as error:
        code = error.response.status_code
        remedy = _REMEDIES.get(code, "try again later")
        raise ResourceError(f"{constants.ENDPOINT} answered {code} for {name!r}", remedy=remedy) from None
    except (errors.LocalEntryNotFoundError, *network_errors) as error:
        what = f"{_no_model(name)}, and {constants.ENDPOINT} cannot be reached ({type(error).__name__})"
        raise MissingError(what, remedy=f"{installed}connect to the network to download it") from None
    except (OSError, ValueError) as error:  # ValueError: the answer is not that of a hub
        raise ResourceError(f"cannot be downloaded: {error}", where=name, remedy="try again") from None


@contextmanager
def _progress() -> Iterator[None]:
    """Show the progress bars of huggingface_hub only on a terminal, and not if messages are turned off."""
    from huggingface_hub.utils.tqdm import disable_progress_bars

    is_shown = sys.stderr.isatty() and logger.isEnabledFor(logging.WARNING)
    with nullcontext() if is_shown else disable_progress_bars():
        yield


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:,.1f} kB"
