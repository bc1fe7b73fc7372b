"""The checkpoints of a training: which are kept, and how the model, the optimizer and the state return from one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bertmill.checkpoint import store
from bertmill.errors import IntegrityError, NonFiniteError
from bertmill.training.distributed import Ranks
from bertmill.training.optimizer import optimizer_tensors, restore_optimizer
from bertmill.training.progress import Journal
from bertmill.training.state import State


@dataclass
class CheckpointKeeper:
    """Saves and restores a training; the first rank writes for all."""

    folder: Path
    ranks: Ranks
    journal: Journal
    num_kept: int  # the newest; those of the best step and of the step resumed from stay too
    resumed_from: int | None = None

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer, state: State) -> None:
        """Write a checkpoint of the current step and remove old ones. NonFiniteError if a weight is not finite."""
        if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
            what = f"after step {state.step:,} there are weights that are not finite; they are not saved"
            raise NonFiniteError(what, where=self.folder.parent, remedy="lower the learning rate")
        if self.ranks.is_first:
            weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
            checkpoint = store.Checkpoint(weights, optimizer_tensors(optimizer, model), state.to_json())
            store.save_checkpoint(self.folder, state.step, checkpoint)
            kept = set(store.saved_steps(self.folder)[-self.num_kept :])
            store.remove_checkpoints(self.folder, kept | {state.best_step, self.resumed_from})
        self.ranks.wait()

    def restore_newest(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> State | None:
        """Go back to the newest whole checkpoint and return its state; None if there is no checkpoint."""
        step, checkpoint, remarks = store.newest_whole(self.folder)
        self.ranks.wait()  # no rank removes what another one still reads
        for remark in remarks:
            self.journal.remark(remark)
        if step is None or checkpoint is None:
            if remarks:
                raise IntegrityError("no checkpoint is whole", where=self.folder, remedy="start again")
            return None
        path = store.checkpoint_path(self.folder, step)
        _require_same_weights(model, checkpoint.weights, path)
        model.load_state_dict(dict(checkpoint.weights), strict=False)  # weights that are tied are saved once
        restore_optimizer(optimizer, model, checkpoint.optimizer)
        state = State.from_json(checkpoint.state, path / store.STATE)
        if self.ranks.is_first:
            # Newer ones are not whole, and would be in the way when their step comes again.
            store.remove_checkpoints(self.folder, {saved for saved in store.saved_steps(self.folder) if saved <= step})
            self.journal.cut(step)
        self.ranks.wait()
        if state.best_step not in (None, *store.saved_steps(self.folder)):
            forget_best(state)  # it was removed for a better one, which is broken: the next evaluation decides
        return state

    def load_weights(self, model: nn.Module, step: int) -> None:
        """Give the model the weights of an earlier step."""
        checkpoint = store.load_checkpoint(store.checkpoint_path(self.folder, step))
        model.load_state_dict(dict(checkpoint.weights), strict=False)


def forget_best(state: State) -> None:
    """Let the next evaluation be the best one."""
    state.best_step, state.best_score, state.best_figures = None, None, {}


def _require_same_weights(model: nn.Module, saved: Mapping[str, Tensor], where: Path) -> None:
    """IntegrityError unless a checkpoint has exactly the weights of this model."""
    theirs = {name: tuple(tensor.shape) for name, tensor in saved.items()}
    ours = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    for name in [*ours, *theirs]:
        if ours.get(name) != theirs.get(name):
            what = f"is of another model: the shape of {name} is {theirs.get(name, 'missing')}, "
            what += f"in the model {ours.get(name, 'missing')}"
            raise IntegrityError(what, where=where, remedy="begin a new run")
