"""Pre-training batches: cutting them into micro-batches changes no gradient."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training.pretraining import NanLossAt, pretrain


def test_gradients_do_not_depend_on_micro_batches(corpus: Path, tmp_path: Path) -> None:
    """This compares gradients, since weights after one step of AdamW show only their signs."""
    gradients = []
    for pieces in (10**6, 8 * 32):  # one part of 32, and parts of 8 or more, since some are short
        captured: list[torch.Tensor] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "bertmill.training.loop.gradient_norm",
                lambda model, captured=captured: captured.extend(p.grad.clone() for p in model.parameters()) or 1.0,
            )
            counted = NanLossAt(set(), patch)
            flags = ("--steps", 1, "--dropout", 0, "--batch-size", 32, "--micro-batch-pieces", pieces)
            assert pretrain(corpus, tmp_path / str(pieces), *flags) == 0
        assert (counted.calls == 1) == (pieces == 10**6)
        gradients.append(captured)
    largest = max(float(gradient.abs().max()) for gradient in gradients[0])
    for whole, parts in zip(*gradients, strict=True):
        assert (whole - parts).abs().max() <= 1e-6 * largest
