"""Convert errors of huggingface_hub and invalid settings of it into one clear line each.

A model that cannot be looked up is a MissingError, also without a network, because its name may be wrong. Once the Hub
has described the model, a file that cannot be transferred is a ResourceError.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bertmill.errors import BertmillError, MissingError, ResourceError, UsageError

if TYPE_CHECKING:
    from huggingface_hub import errors

_REMEDIES = {  # for HTTP statuses
    401: "check HF_TOKEN",
    403: "check that HF_TOKEN gives access to this model",
    429: "wait a few minutes, or set HF_TOKEN for a higher limit",
}


def no_model(name: str) -> str:
    """What is wrong with a name that is neither on this machine nor on the Hub."""
    return f"no model folder, installed model or cached model is named {name!r}"


def check_endpoint() -> None:
    """Raise UsageError if HF_ENDPOINT is not an address. huggingface_hub may then fail to import."""
    endpoint = os.environ.get("HF_ENDPOINT")
    if endpoint is None:
        return
    try:
        parts = urlsplit(endpoint)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port, or of an IPv6 address
        is_valid = False
    if not is_valid:
        what = f"HF_ENDPOINT is {endpoint!r}, which is not the address of a server"
        raise UsageError(what, remedy="unset it, or set it to an address such as https://huggingface.co")


@contextmanager
def hub_errors(name: str, revision: str, installed: str) -> Iterator[None]:
    """Convert errors of looking up a model, and answers that refuse it."""
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
        what = f"{no_model(name)}, and no public model on {constants.ENDPOINT}"
        raise MissingError(what, remedy=f"{installed}set HF_TOKEN if it is private") from None
    except errors.RevisionNotFoundError:
        raise MissingError(f"the model {name!r} has no revision {revision!r}") from None
    except errors.HfHubHTTPError as error:
        raise _refused(name, error) from None
    except network_errors as error:
        what = f"{no_model(name)}, and {constants.ENDPOINT} cannot be reached ({type(error).__name__})"
        raise MissingError(what, remedy=f"{installed}connect to the network to download it") from None
    except (OSError, RuntimeError, ValueError) as error:  # ValueError: the answer is not JSON
        raise ResourceError(f"cannot be downloaded: {_first_line(error)}", where=name, remedy="try again") from None


@contextmanager
def transfer_errors(name: str, file: str) -> Iterator[None]:
    """Convert errors of transferring `file`, except answers that refuse the model, which `hub_errors` converts."""
    from huggingface_hub import errors

    try:
        yield
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.RemoteEntryNotFoundError):
        raise
    except (errors.HTTPError, OSError, RuntimeError, ValueError) as error:  # type: ignore[attr-defined]  # RuntimeError: of hf_xet
        cause = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ else error
        if isinstance(cause, errors.HfHubHTTPError) and cause.response.status_code in _REMEDIES:
            raise _refused(name, cause) from None
        raise ResourceError(
            f"{file} cannot be downloaded: {_reason(cause)}", where=name, remedy=_remedy(cause)
        ) from None


def _refused(name: str, error: errors.HfHubHTTPError) -> ResourceError:
    from huggingface_hub import constants

    code = error.response.status_code
    remedy = _REMEDIES.get(code, "try again later")
    return ResourceError(f"{constants.ENDPOINT} answered {code} for {name!r}", remedy=remedy)


def _reason(error: BaseException) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.HfHubHTTPError):
        return f"the server answered {error.response.status_code}"
    return _first_line(error)  # without the advice of the library, which applies to its own functions


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].rstrip(".") or type(error).__name__


def _remedy(error: BaseException) -> str | None:
    """Repeating helps unless the reason is on this machine, such as a full disk."""
    is_local = isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError | TimeoutError)
    return None if is_local else "run the command again"
