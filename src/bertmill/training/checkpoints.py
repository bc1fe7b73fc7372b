"""The checkpoints of a training run: which are kept, and how model, optimizer and state are restored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bertmill.checkpoint import store
from bertmill.errors import IntegrityError, NonFiniteError
from bertmill.training.distributed import Ranks
from bertmill.training.optimizer import optimizer_shapes, optimizer_tensors, restore_optimizer
from bertmill.training.progress import Journal
from bertmill.training.state import State


@dataclass
class CheckpointKeeper:
    """Saves and restores checkpoints; only the first rank writes."""

    folder: Path
    ranks: Ranks
    journal: Journal
    num_kept: int  # the newest; those of the best step and of the step resumed from are kept too
    resumed_from: int | None = None

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer, state: State) -> None:
        """Save the current step and remove old checkpoints. NonFiniteError if a weight is not finite."""
        if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
            what = f"weights are not finite after step {state.step:,}; no checkpoint was saved"
            raise NonFiniteError(what, where=self.folder.parent, remedy="lower the learning rate")
        if self.ranks.is_first:
            weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
            checkpoint = store.Checkpoint(weights, optimizer_tensors(optimizer, model), state.to_json())
            store.save_checkpoint(self.folder, state.step, checkpoint)
            kept = set(store.saved_steps(self.folder)[-self.num_kept :])
            store.remove_checkpoints(self.folder, kept | {state.best_step, self.resumed_from})
        self.ranks.wait()

    def restore_newest(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> State | None:
        """Restore the newest intact checkpoint and return its state; None if there is no checkpoint."""

        def check(step: int, checkpoint: store.Checkpoint) -> None:
            self._refuse_misfits(model, step, checkpoint)

        step, checkpoint, remarks = store.newest_complete(self.folder, check)
        self.ranks.wait()  # no rank may remove a checkpoint that another one still reads
        for remark in remarks:
            self.journal.remark(remark)
        if step is None or checkpoint is None:
            if remarks:
                reason = remarks[0].removeprefix(store.SKIPPED)
                raise IntegrityError(
                    f"no checkpoint can be used: {reason}", where=self.folder, remedy="start a new run"
                )
            return None
        model.load_state_dict(dict(checkpoint.weights), strict=False)  # tied weights are saved once
        restore_optimizer(optimizer, model, checkpoint.optimizer)
        state = self._state(step, checkpoint)
        if self.ranks.is_first:
            # Newer checkpoints are damaged, and their steps will be saved again.
            store.remove_checkpoints(self.folder, {saved for saved in store.saved_steps(self.folder) if saved <= step})
            self.journal.cut(step)
        self.ranks.wait()
        if state.best_step not in (None, *store.saved_steps(self.folder)):
            forget_best(state)  # a better checkpoint replaced it and is damaged: the next evaluation decides
        return state

    def _refuse_misfits(self, model: nn.Module, step: int, checkpoint: store.Checkpoint) -> None:
        """Raise IntegrityError unless the files of a checkpoint belong to this model and step."""
        path = store.checkpoint_path(self.folder, step)
        parameters = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
        _require_shapes(parameters, checkpoint.weights, path / store.WEIGHTS)
        _require_shapes(optimizer_shapes(model, checkpoint.optimizer), checkpoint.optimizer, path / store.OPTIMIZER)
        if self._state(step, checkpoint).step != step:
            raise IntegrityError(f"is not the state after step {step:,}", where=path / store.STATE)

    def _state(self, step: int, checkpoint: store.Checkpoint) -> State:
        return State.from_json(checkpoint.state, store.checkpoint_path(self.folder, step) / store.STATE)

    def load_weights(self, model: nn.Module, step: int) -> None:
        """Load the weights of a saved step into the model."""
        checkpoint = store.load_checkpoint(store.checkpoint_path(self.folder, step))
        model.load_state_dict(dict(checkpoint.weights), strict=False)


def forget_best(state: State) -> None:
    """Clear the best step, so that the next evaluation becomes the best."""
    state.best_step, state.best_score, state.best_figures = None, None, {}


def _require_shapes(ours: Mapping[str, tuple[int, ...]], saved: Mapping[str, Tensor], where: Path) -> None:
    """Raise IntegrityError unless the saved tensors have these names and shapes."""
    theirs = {name: tuple(tensor.shape) for name, tensor in saved.items()}
    for name in [*ours, *theirs]:
        if ours.get(name) != theirs.get(name):
            what = f"does not match the model: {name} is {theirs.get(name, 'missing')} in the checkpoint "
            what += f"and {ours.get(name, 'missing')} in the model"
            raise IntegrityError(what, where=where, remedy="start a new run")
