"""The network guard works in this process and in child processes."""

import socket
import subprocess
import sys

import pytest
import sitecustomize


def test_a_connection_to_another_host_fails() -> None:
    with socket.socket() as connection, pytest.raises(RuntimeError, match="tried to connect"):
        connection.connect(("192.0.2.1", 80))
    assert sitecustomize.ATTEMPTS.pop() == ("192.0.2.1", 80)


def test_a_loopback_connection_works() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()


def test_child_processes_are_guarded() -> None:
    code = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "a test tried to connect" in child.stderr
