"""Runs `bertmill` in several ranks, as torchrun does: a program for test_distributed.py.

    forked_ranks.py NUM_RANKS COMMAND FLAGS…     exits with the largest exit code
The ranks are forked from this process, so torch is imported once; torchrun would import it in itself and in each rank.
Finished runs keep all checkpoints, so that the test can go back to them.
"""

from __future__ import annotations

import os
import socket
import sys

import torch
import torch._dynamo
import torch.distributed

import bertmill.cli.pretrain  # noqa: F401
from bertmill.cli.main import main
from bertmill.training.runs import Run

Run.clean_up = lambda run: None  # type: ignore[method-assign]


def start(rank: int, num_ranks: int, port: int, words: list[str]) -> int:
    child = os.fork()
    if child:
        return child
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(num_ranks)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    code = main(words)
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    num_ranks, words = int(sys.argv[1]), sys.argv[2:]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = [start(rank, num_ranks, port, words) for rank in range(num_ranks)]
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
