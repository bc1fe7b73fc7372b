"""The log of a run for TensorBoard, written without TensorBoard's own writer.

That writer has a thread, which prints a traceback if the disk is full. Here, a line of the log is appended to the event
file in one write, so an error is raised where it can be handled.

An event file consists of records: an event of TensorBoard, with its length and checksums. After an event with a start
of session, TensorBoard forgets what earlier files have from that step on.
"""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from bertmill.storage import append_to_file, disk_errors

_VERSION = "brain.Event:2"


class EventFile:
    """A new event file in `folder`, whose first step is `step`."""

    def __init__(self, folder: Path, step: int) -> None:
        self._path = new_path(folder)
        with disk_errors(self._path):
            self._path.parent.mkdir(exist_ok=True)
        start = {"step": step, "session_log": SessionLog(status=SessionLog.START)}
        self._append([{"file_version": _VERSION}, start])

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append metrics by name."""
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._append([{"step": step, "summary": Summary(value=[value])} for value in values])

    def _append(self, events: list[dict[str, Any]]) -> None:
        content = io.BytesIO()
        writer = RecordWriter(content)
        for fields in events:
            writer.write(Event(wall_time=time.time(), **fields).SerializeToString())
        append_to_file(self._path, content.getvalue())


def new_path(folder: Path) -> Path:
    """The path of a new event file; TensorBoard reads files in the order of their names, which have the time."""
    return folder / f"events.out.tfevents.{time.time_ns() // 1000:016d}.{socket.gethostname()}.{os.getpid()}"
