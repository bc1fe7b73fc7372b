"""No test may leave this machine: any connection that is not to the loopback fails. Child processes load this too."""

import socket
from typing import Any

_connect, _connect_ex = socket.socket.connect, socket.socket.connect_ex


def _refuse_foreign(address: Any) -> None:
    is_inet = isinstance(address, tuple)
    if is_inet and not (str(address[0]) in ("localhost", "::1") or str(address[0]).startswith("127.")):
        raise RuntimeError(f"a test tried to connect to {address}")


def _guarded_connect(self: socket.socket, address: Any) -> None:
    _refuse_foreign(address)
    _connect(self, address)


def _guarded_connect_ex(self: socket.socket, address: Any) -> int:
    _refuse_foreign(address)
    return _connect_ex(self, address)


socket.socket.connect = _guarded_connect  # type: ignore[method-assign]
socket.socket.connect_ex = _guarded_connect_ex  # type: ignore[method-assign]
