"""Executes training runs that are repeatedly killed and resumed until they end: a program for test_resume.py and
test_finetune.py.

It reads lines with a JSON list `[MODE, COMMAND, FLAGS…]`, and prints for each how often the run was killed. MODE is one
of
- `random:N:SEED[:SECONDS]`: kill N times, each at most SECONDS after the start
- `saving:EVERY`: kill at every EVERYth change of the disk while checkpoints are saved
- the name of a signal: send it once, while the training runs
Children are forked from this process, which has imported everything and computed nothing, so that each start is fast.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # otherwise every child would import this and the next three

import bertmill.cli.finetune
import bertmill.cli.pretrain
import bertmill.training.tensorboard  # noqa: F401
from bertmill import storage
from bertmill.checkpoint import store
from bertmill.cli.main import main

os.environ["OMP_NUM_THREADS"] = "1"


def start(flags: list[str], kill_at_change: int | None = None) -> int:
    child = os.fork()
    if child:
        return child
    os.dup2(2, 1)  # stdout is for the numbers of kills
    torch.set_num_threads(1)
    # With --compile, each start compiles again, as after a reboot.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{flags[flags.index('--out') + 1]}-compiled-{os.getpid()}"
    if kill_at_change is not None:
        _kill_at_change(kill_at_change)
    os._exit(main([*flags, "--quiet"]))


def _kill_at_change(number: int) -> None:
    """Kill this process just before it changes the disk after `number` other changes while saving."""
    left = [number]

    def counted(function):  # noqa: ANN001, ANN202
        def call(*arguments, **named):  # noqa: ANN002, ANN003, ANN202
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return function(*arguments, **named)

        return call

    storage.fsync = counted(storage.fsync)
    storage.sha256_of = counted(storage.sha256_of)
    store.write_tensors = counted(store.write_tensors)
    Path.rename = counted(Path.rename)
    Path.replace = counted(Path.replace)
    store.shutil.rmtree = counted(store.shutil.rmtree)


def wait(child: int) -> int:
    """Wait for a child and return its exit code, or minus the number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def at_random_moments(flags: list[str], count: str, seed: str, seconds: str = "1") -> int:
    draw = random.Random(int(seed))
    kills = 0
    while kills < int(count):
        child = start(flags)
        time.sleep(draw.uniform(0.0, float(seconds)))
        os.kill(child, signal.SIGKILL)
        if wait(child) == 0:
            return kills
        kills += 1
    assert wait(start(flags)) == 0
    return kills


def while_saving(flags: list[str], every: str) -> int:
    kills = 0
    while (code := wait(start(flags, kill_at_change=int(every) * kills))) != 0:
        assert code == -signal.SIGKILL, code
        kills += 1
    return kills


def by_signal(flags: list[str], name: str) -> int:
    number = signal.Signals[name]
    log = Path(flags[flags.index("--out") + 1]) / "log.jsonl"
    child = start(flags)
    while not log.exists() or not log.read_text(encoding="utf-8"):
        time.sleep(0.01)
    os.kill(child, number)
    assert wait(child) == 128 + number
    assert wait(start(flags)) == 0
    return 1


def execute(mode: str, flags: list[str]) -> int:
    kind, *numbers = mode.split(":")
    if kind == "random":
        return at_random_moments(flags, *numbers)
    return while_saving(flags, *numbers) if kind == "saving" else by_signal(flags, kind)


if __name__ == "__main__":
    for line in sys.stdin:
        mode, *flags = json.loads(line)
        print(execute(mode, flags), flush=True)
