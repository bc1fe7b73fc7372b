"""Tests for tasks as trainables: losses that match Hugging Face, and batches that depend on the seed only."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch
import transformers

from bertmill.batching.windows import Windows, pack
from bertmill.errors import UsageError
from bertmill.machine import choose_device
from bertmill.model.registry import MODEL_CLASSES
from bertmill.rows.row import Row
from bertmill.tasks.answer.rows import QuestionRow
from bertmill.tasks.answer.spans import QuestionExample
from bertmill.tasks.answer.task import AnswerQuestions
from bertmill.tasks.base import AnyTask, Example
from bertmill.tasks.choose import ChoiceRow, Choose
from bertmill.tasks.classify import Classify, ClassRow
from bertmill.tasks.regress import NumberRow, Regress
from bertmill.tasks.tag.rows import WordsRow
from bertmill.tasks.tag.task import Tag, TagExample
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.words import join_words
from bertmill.training.dataset import Dataset
from bertmill.training.distributed import Ranks
from bertmill.training.loop import ResolvedTraining
from bertmill.training.task_trainable import TaskTrainable
from tests.finetuned import WORDS, text_of

STEPS = 50


def texts(draw: random.Random) -> tuple[str, str]:
    return text_of(draw), text_of(draw)


def choice_row(draw: random.Random, place: str) -> ChoiceRow:
    choices = tuple(f"{text_of(draw)} {letter}" for letter in "xyz")
    return ChoiceRow(place, texts(draw), choices, draw.randrange(3))


def words_row(draw: random.Random, place: str) -> WordsRow:
    text, spans = join_words(text_of(draw).split())
    return WordsRow(place, (text,), tuple(spans), tuple(draw.choice(("O", "B-x", "I-x")) for _ in spans))


def question_row(draw: random.Random, place: str) -> QuestionRow:
    words = draw.choices(WORDS, k=20)  # of the same length, since Hugging Face's softmax includes padding
    start = sum(len(word) + 1 for word in words[:7])
    span = (start, start + len(" ".join(words[7:9])))
    return QuestionRow(place, ("good film", " ".join(words)), (span,) if draw.random() < 0.8 else ())


CASES: dict[str, tuple[AnyTask, Callable[[random.Random, str], Row]]] = {
    "classify": (Classify(("a", "b", "c")), lambda draw, place: ClassRow(place, texts(draw), draw.choice("abc"))),
    "multi-label": (
        Classify(("a", "b", "c"), multi_label=True),
        lambda draw, place: ClassRow(place, texts(draw), tuple(draw.sample("abc", draw.randint(0, 3)))),
    ),
    "regress": (Regress(), lambda draw, place: NumberRow(place, texts(draw), draw.uniform(0, 5))),
    "choose": (Choose(), choice_row),
    "tag": (Tag(("O", "B-x", "I-x"), has_spans=True), words_row),
    "answer": (AnswerQuestions(), question_row),
}


def trainable_of(
    name: str, model: str | Path, count: int = 64, ranks: Ranks | None = None, batch_size: int = 4
) -> TaskTrainable:
    task, make_row = CASES[name]
    draw = random.Random(1)
    windows = Windows(BertTokenizer.from_pretrained(model), 64)
    train = [task.encode(make_row(draw, f"row {number}"), windows) for number in range(count)]
    ranks = ranks or Ranks(choose_device("cpu"))
    resolved = ResolvedTraining(
        out=Path(), seed=3, batch_size=batch_size, micro_batch_pieces=40, eval_every=1, log_every=1
    )
    return TaskTrainable(Dataset(task, task.selection_metrics[0], list(train), [], [], {}), resolved, ranks)


@pytest.mark.parametrize("name", CASES)
def test_losses_of_fifty_steps_match_hugging_face(name: str, tiny: Path, tmp_path: Path) -> None:
    compare_with_hugging_face(name, tiny, 1e-3, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_losses_of_fifty_steps_with_real_weights_match_hugging_face(name: str, tmp_path: Path) -> None:
    compare_with_hugging_face(name, "minilm", 5e-5, tmp_path)


def compare_with_hugging_face(name: str, model_name: str | Path, learning_rate: float, tmp_path: Path) -> None:
    trainable = trainable_of(name, model_name)
    task = trainable.data.task
    changes = {**task.folder_entries().config, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    torch.manual_seed(0)
    ours = MODEL_CLASSES[task.head].from_pretrained(model_name, **changes)
    ours.save_pretrained(tmp_path)
    theirs = getattr(transformers, task.head).from_pretrained(tmp_path)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=learning_rate, fused=True) for model in (ours, theirs)]
    for model in (ours, theirs):
        model.train()
    for batch in islice(trainable.batches(0), STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        our_loss = 0.0
        for part in trainable.micro_batches(batch):
            loss, _ = trainable.loss(ours, part, trainable.counts(batch))
            loss.backward()
            our_loss += float(loss.detach())
        their_loss = theirs(**their_inputs(name, batch)).loss
        their_loss.backward()
        assert our_loss == pytest.approx(float(their_loss.detach()), abs=1e-4)
        for optimizer in optimizers:
            optimizer.step()


def their_inputs(name: str, batch: list[Example]) -> dict[str, torch.Tensor]:
    packed = pack([window for example in batch for (window,) in example.sequences])
    assert packed.piece_ids is not None
    assert packed.segments is not None

    def padded(flat: torch.Tensor) -> torch.Tensor:
        rows = torch.nn.utils.rnn.pad_sequence(list(flat.split(list(packed.lengths))), batch_first=True)
        return rows.view(len(batch), -1, rows.shape[1]) if name == "choose" else rows

    inputs = {
        "input_ids": padded(packed.piece_ids),
        "token_type_ids": padded(packed.segments),
        "attention_mask": padded(torch.ones_like(packed.piece_ids)),
    }
    if name == "tag":
        labels = torch.full_like(inputs["input_ids"], -100)
        for row, example in zip(labels, batch, strict=True):
            assert isinstance(example, TagExample)
            row[torch.from_numpy(example.firsts)] = torch.tensor(example.target)
        return {**inputs, "labels": labels}
    if name == "answer":
        spans = torch.tensor([span for each in batch if isinstance(each, QuestionExample) for span in each.spans])
        return {**inputs, "start_positions": spans[:, 0], "end_positions": spans[:, 1]}
    dtype = torch.float32 if name in ("regress", "multi-label") else torch.int64
    return {**inputs, "labels": torch.tensor([example.target for example in batch], dtype=dtype)}


def places(batches: list[list[Example]]) -> list[str]:
    return [example.row.place for batch in batches for example in batch]


def test_every_epoch_has_every_example_once_in_a_different_order(tiny: Path) -> None:
    trainable = trainable_of("classify", tiny, count=12)
    first, second = (places(list(islice(trainable.batches(start), 3))) for start in (0, 3))
    assert sorted(first) == sorted(second) == sorted(f"row {number}" for number in range(12))
    assert first != second


def test_batches_from_a_later_step_are_those_of_the_whole_stream(tiny: Path) -> None:
    trainable = trainable_of("classify", tiny, count=10)  # an epoch does not end with a batch
    whole = list(islice(trainable.batches(0), 8))
    assert places(list(islice(trainable.batches(5), 3))) == places(whole[5:])


def test_ranks_share_the_batches_of_one_process(tiny: Path) -> None:
    whole = list(islice(trainable_of("classify", tiny, 10).batches(0), 4))
    device = choose_device("cpu")
    shares = [list(islice(trainable_of("classify", tiny, 10, Ranks(device, rank, 2)).batches(0), 4)) for rank in (0, 1)]
    for batch, *parts in zip(whole, *shares, strict=True):
        assert sorted(places([batch])) == sorted(places(parts))
    with pytest.raises(UsageError, match=r"batch_size 1 is smaller than the number of ranks \(2\)"):
        trainable_of("classify", tiny, 10, Ranks(device, 0, 2), batch_size=1)


def test_micro_batches_are_the_batch_and_their_losses_add_up(tiny: Path) -> None:
    trainable = trainable_of("classify", tiny)
    batch = next(trainable.batches(0))
    parts = trainable.micro_batches(batch)
    assert len(parts) > 1
    assert sorted(places(list(parts))) == sorted(places([batch]))
    torch.manual_seed(0)
    settings = {
        **trainable.data.task.folder_entries().config,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    model = MODEL_CLASSES[trainable.data.task.head].from_pretrained(tiny, **settings)
    totals = trainable.counts(batch)
    with torch.no_grad():
        whole, *losses = (float(trainable.loss(model, part, totals)[0]) for part in (batch, *parts))
    assert sum(losses) == pytest.approx(whole, abs=1e-5)
