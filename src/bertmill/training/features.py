"""The features of examples: each is encoded once by the frozen encoder, and the result is kept in the run folder.

    RUN/features/train-000000.safetensors   `rows`: one row per word for `tag`, otherwise one row per example [n, F];
                                            `sizes`: the number of rows of each example

A file holds BLOCK_PIECES pieces. A resumed run reads the files that exist and encodes only the rest. Files are batched
one at a time, so their content does not depend on where a run was stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bertmill.batching.by_length import split_into_batches
from bertmill.checkpoint.tensors import read_all_tensors, write_tensors
from bertmill.errors import IntegrityError
from bertmill.inference.runner import stream_outputs
from bertmill.model.config import BertConfig
from bertmill.model.probe import KEY, Probe
from bertmill.model.registry import MODEL_CLASSES
from bertmill.tasks.base import AnyTask, Example

BLOCK_PIECES = 1 << 15
_ROWS, _SIZES = "rows", "sizes"


@dataclass(frozen=True)
class Features:
    """The features of examples: the rows of all examples, and which values belong to which feature."""

    rows: Tensor  # [n, F]
    sizes: list[int]  # the number of rows of each example
    columns: dict[str, slice]  # by feature name

    def of(self, name: str) -> Tensor:
        """The rows of one feature."""
        return self.rows[:, self.columns[name]]


def load_encoder(model: str, task: AnyTask, names: Sequence[str], device: torch.device) -> Probe:
    """The frozen encoder of `model`, whose outputs are the features `names`."""
    kind = MODEL_CLASSES[task.probe]
    assert issubclass(kind, Probe)
    config = BertConfig.from_pretrained(model).with_settings(**task.folder_entries().config, **{KEY: list(names)})
    encoder = kind.from_pretrained(model, config=config, new_classifier=True)
    encoder.classifier = nn.Identity()
    return encoder.to(device).eval()


def encode_examples(
    encoder: Probe,
    task: AnyTask,
    examples: Sequence[Example],
    folder: Path,
    name: str,
    progress: Callable[[float], None],
) -> Features:
    """The features of `examples`, read from the files `name` of `folder` or else computed and written there.

    `progress` receives the share of the work that is done.
    """
    total = max(1, sum(example.num_pieces for example in examples))
    done = 0
    parts: list[Tensor] = []
    sizes: list[int] = []
    for number, block in enumerate(split_into_batches(examples, lambda each: each.num_pieces, BLOCK_PIECES)):
        path = folder / f"{name}-{number:06d}.safetensors"
        if not path.exists():
            write_tensors(path, _encode(encoder, task, block))
        stored = read_all_tensors(path)
        if not _fits(stored, len(block), sum(size.stop - size.start for _, size in _columns(encoder))):
            raise damaged(path)
        parts.append(stored[_ROWS])
        sizes += stored[_SIZES].tolist()
        done += sum(example.num_pieces for example in block)
        progress(done / total)
    return Features(torch.cat(parts), sizes, dict(_columns(encoder)))


def _encode(encoder: Probe, task: AnyTask, examples: Sequence[Example]) -> dict[str, Tensor]:
    outputs = [output for _, output in stream_outputs(task, encoder, examples, encoder.device)]
    rows = [torch.from_numpy(output).view(-1, output.shape[-1]) for output in outputs]
    if not all(bool(each.isfinite().all()) for each in rows):
        raise IntegrityError("the model's vectors are not finite", remedy="use another model, or train it again")
    return {_ROWS: torch.cat(rows), _SIZES: torch.tensor(list(map(len, rows)))}


def damaged(path: Path) -> IntegrityError:
    """The error for a file of a run that does not hold what it should."""
    return IntegrityError("is damaged", where=path, remedy="remove it, and resume the run")


def _fits(stored: Mapping[str, Tensor], num_examples: int, num_features: int) -> bool:
    """Whether a file holds features of this many examples."""
    if stored.keys() != {_ROWS, _SIZES}:
        return False
    rows, sizes = stored[_ROWS], stored[_SIZES]
    is_right_type = rows.dtype == torch.float32 and sizes.dtype == torch.int64
    has_right_shape = sizes.shape == (num_examples,) and rows.shape == (int(sizes.sum()), num_features)
    return is_right_type and has_right_shape and bool(rows.isfinite().all()) and bool((sizes > 0).all())


def _columns(encoder: Probe) -> Iterator[tuple[str, slice]]:
    start = 0
    for name, size in encoder.feature_sizes(encoder.config, getattr(encoder.config, KEY)).items():
        yield name, slice(start, start + size)
        start += size
