"""No test may leave this machine: any connection that is not to the loopback fails. Child processes load this too."""

import re
import socket
from typing import Any

ATTEMPTS: list[Any] = []  # a library may swallow the error; the attempt is remembered

_connect, _connect_ex = socket.socket.connect, socket.socket.connect_ex


def _refuse_foreign(address: Any) -> None:
    is_inet = isinstance(address, tuple)
    if is_inet and not (str(address[0]) in ("localhost", "::1") or re.fullmatch(r"127(\.\d+){3}", str(address[0]))):
        ATTEMPTS.append(address)
        raise RuntimeError(f"a test tried to connect to {address}")


def _guarded_connect(self: socket.socket, address: Any) -> None:
    _refuse_foreign(address)
    _connect(self, address)


def _guarded_connect_ex(self: socket.socket, address: Any) -> int:
    _refuse_foreign(address)
    return _connect_ex(self, address)


socket.socket.connect = _guarded_connect  # type: ignore[method-assign]
socket.socket.connect_ex = _guarded_connect_ex  # type: ignore[method-assign]
