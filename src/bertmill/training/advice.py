"""What to change about a training that went wrong, judged by its log."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

CHECK_ROWS = "Check the columns and labels, add rows, or start from a model that fits the texts better."
NEAR_GUESSING = 0.9  # of the loss of guessing: the model learned almost nothing
SMALL = 0.2  # of the loss of guessing: the loss cannot fall much further
FALLING = 0.8  # of the loss a fifth of the training earlier: more training would help


def advice_from_losses(log: Path, guessing_loss: float, *, is_stalled: bool) -> str:
    """What to change if the last losses in a log are near that of guessing, or still fall fast; otherwise empty.

    More training is not advised if the metric on the dev rows `is_stalled`.
    """
    losses = [line["loss"] for line in map(json.loads, log.read_text(encoding="utf-8").splitlines()) if "loss" in line]
    part = len(losses) // 5
    if not part:
        return ""
    last, before = float(np.mean(losses[-part:])), float(np.mean(losses[-2 * part : -part]))
    if last > NEAR_GUESSING * guessing_loss:
        return (
            f"The training loss ended at {last:.3g}, near that of guessing ({guessing_loss:.3g}): the model learned "
            "almost nothing. Increase `learning_rate` or `epochs`, or check the columns and labels."
        )
    if not is_stalled and last < FALLING * before and last > SMALL * guessing_loss:
        return f"The training loss was still falling ({before:.3g} to {last:.3g}): increase `epochs`."
    return ""
