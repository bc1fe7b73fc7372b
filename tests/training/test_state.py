"""The state of a training run."""

from __future__ import annotations

from pathlib import Path

from bertmill.training.state import State


def test_a_state_without_the_seconds_before_the_first_step_can_be_read() -> None:
    """Checkpoints of earlier versions have such a state."""
    content = State(step=3, seconds=2.0).to_json()
    del content["start_seconds"]
    assert State.from_json(content, Path("state.json")) == State(step=3, seconds=2.0)
