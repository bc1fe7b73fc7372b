"""Fine-tuning: the same losses as Hugging Face, the same bits when it is killed, and answers that hold anywhere."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from bertmill.inference.answering import TaskModel
from bertmill.tasks.datasets import SPLIT_SEED
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.spans import EncodedQuestion
from bertmill.tasks.split import split_rows
from bertmill.tasks.windows import PIECES_AT_ONCE, WindowMaker, pack
from bertmill.training.examples import ExampleLessons
from safetensors.torch import load_file

import bertmill
from bertmill.cli import evaluate as evaluate_command
from bertmill.cli.main import main
from bertmill.config.commands import RowSettings
from bertmill.errors import DataError, UsageError
from bertmill.inference.evaluation import Evaluation
from bertmill.machine import choose_device
from bertmill.model.bert import MODEL_CLASSES, BertModel
from bertmill.model.config import BertConfig
from bertmill.tasks.answer import AnswerQuestions
from bertmill.tasks.base import EncodedExample, Task
from bertmill.tasks.choose import Choose
from bertmill.tasks.classify import Classify
from bertmill.tasks.regress import Regress
from bertmill.tasks.tag import EncodedWords, Tag
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.words import join_words
from bertmill.training.distributed import Ranks
from tests.training.test_resume import PROGRAM, outcome

WORDS = ["good", "bad", "fine", "poor", "great", "dull", "warm", "cold", "film", "book", "plot", "scene"]
STEPS = 50


def text_of(draw: random.Random, longest: int = 12) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(1, longest)))


@pytest.fixture(scope="module")
def rows_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences whose label is whether `good` stands in them."""
    draw = random.Random(0)
    path = tmp_path_factory.mktemp("rows") / "rows.tsv"
    texts = [text_of(draw) for _ in range(120)]
    lines = [f"{text}\t{'yes' if 'good' in text.split() else 'no'}" for text in texts]
    path.write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random tiny model with MiniLM's vocabulary."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    torch.manual_seed(0)
    tokenizer = BertTokenizer.from_pretrained("minilm")
    BertModel(BertConfig.of_size("tiny").with_settings(vocab_size=len(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def flags_of(tiny: Path, rows: Path, out: Path, **more: Any) -> list[str]:
    flags = {"model": tiny, "train": rows, "out": out, "batch-size": 8, "epochs": 4, "threads": 1, **more}
    return ["finetune", "classify", *(str(word) for name, value in flags.items() for word in (f"--{name}", value))]


@pytest.fixture(scope="module")
def finished(tiny: Path, rows_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    flags = flags_of(tiny, rows_file, out, **{"learning-rate": 2e-3, "epochs": 12, "max-length": 16})
    assert main([*flags, "--quiet"]) == 0
    return out


# Equal to Hugging Face


TASKS: dict[str, Task] = {
    "classify": Classify(("a", "b", "c")),
    "multi-label": Classify(("a", "b", "c"), multi_label=True),
    "regress": Regress(),
    "choose": Choose(),
    "tag": Tag(("O", "B-x", "I-x"), has_spans=True),
    "answer": AnswerQuestions(),
}


def examples_for(name: str, task: Task, count: int, make_windows: WindowMaker) -> list[EncodedExample]:
    draw = random.Random(1)
    rows = []
    for number in range(count):
        place, texts = f"row {number}", (text_of(draw), text_of(draw))
        if name == "choose":
            choices = tuple(f"{text_of(draw)} {letter}" for letter in "xyz")
            rows.append(LabelledRow(place, texts, draw.choice(choices), choices))
        elif name == "regress":
            rows.append(LabelledRow(place, texts, str(draw.uniform(0, 5))))
        elif name == "tag":
            text, spans = join_words(text_of(draw).split())
            tags = tuple(draw.choice(("O", "B-x", "I-x")) for _ in spans)
            rows.append(LabelledRow(place, (text,), tags, spans=tuple(spans)))
        elif name == "answer":  # all of one length: their softmax goes over padding too
            words = draw.choices(WORDS, k=20)
            start = sum(len(word) + 1 for word in words[:7])
            answer = " ".join(words[7:9])
            passage, spans = " ".join(words), ((start, start + len(answer)),)
            rows.append(LabelledRow(place, ("good film", passage), (answer,), spans=spans if number % 5 else ()))
        elif name == "multi-label":
            rows.append(LabelledRow(place, texts, tuple(draw.sample("abc", draw.randint(0, 3)))))
        else:
            rows.append(LabelledRow(place, texts, draw.choice("abc")))
    return [task.encode(task.example(row), make_windows) for row in rows]


@pytest.mark.parametrize(
    "name", [name if name == "classify" else pytest.param(name, marks=pytest.mark.slow) for name in TASKS]
)
def test_losses_of_fifty_steps_are_those_of_hugging_face(name: str, tmp_path: Path) -> None:
    task = TASKS[name]
    tokenizer = BertTokenizer.from_pretrained("minilm")
    changes = {**task.settings(), "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    torch.manual_seed(0)
    ours = MODEL_CLASSES[task.head].from_pretrained("minilm", **changes)
    ours.save_pretrained(tmp_path)
    theirs = getattr(transformers, task.head).from_pretrained(tmp_path)
    train = examples_for(name, task, 64, WindowMaker(tokenizer, 64))
    ranks = Ranks(choose_device("cpu"))
    lessons = ExampleLessons(task, task.goals[0], train, [], ranks, seed=3, batch_size=4, micro_batch_pieces=40)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=5e-5, fused=True) for model in (ours, theirs)]
    batches = lessons.batches(0)
    for model in (ours, theirs):
        model.train()
    for _ in range(STEPS):
        batch = next(batches)
        for optimizer in optimizers:
            optimizer.zero_grad()
        our_loss = 0.0
        for part in lessons.micro_batches(batch):
            loss, _ = lessons.loss(ours, part, lessons.counts(batch))
            loss.backward()
            our_loss += float(loss.detach())
        their_loss = theirs(**their_inputs(name, batch)).loss
        their_loss.backward()
        assert our_loss == pytest.approx(float(their_loss.detach()), abs=1e-4)
        for optimizer in optimizers:
            optimizer.step()


def their_inputs(name: str, batch: list[EncodedExample]) -> dict[str, torch.Tensor]:
    windows = [window for example in batch for (window,) in example.sequences]
    packed = pack(windows)
    assert packed.piece_ids is not None
    assert packed.segments is not None

    def padded(flat: torch.Tensor) -> torch.Tensor:
        rows = torch.nn.utils.rnn.pad_sequence(list(flat.split(list(packed.lengths))), batch_first=True)
        return rows.view(len(batch), -1, rows.shape[1]) if name == "choose" else rows

    targets = [example.target for example in batch]
    inputs = {
        "input_ids": padded(packed.piece_ids),
        "token_type_ids": padded(packed.segments),
        "attention_mask": padded(torch.ones_like(packed.piece_ids)),
    }
    if name == "tag":
        labels = torch.full_like(inputs["input_ids"], -100)
        for row, example in zip(labels, batch, strict=True):
            assert isinstance(example, EncodedWords)
            row[torch.from_numpy(example.firsts)] = torch.tensor(example.target)
        return {**inputs, "labels": labels}
    if name == "answer":
        spans = torch.tensor([span for each in batch if isinstance(each, EncodedQuestion) for span in each.spans])
        return {**inputs, "start_positions": spans[:, 0], "end_positions": spans[:, 1]}
    return {
        **inputs,
        "labels": torch.tensor(targets, dtype=torch.float32 if name in ("regress", "multi-label") else torch.int64),
    }


# The command


def test_a_run_learns_and_its_model_knows_the_labels(finished: Path) -> None:
    note = json.loads((finished / "model/bertmill.json").read_text(encoding="utf-8"))
    assert note["task"] == "classify"
    assert note["labels"] == ["no", "yes"]
    assert note["dev"]["accuracy"] > 0.9
    config = transformers.BertConfig.from_pretrained(finished / "model")
    assert config.id2label == {0: "no", 1: "yes"}
    last = json.loads((finished / "log.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert last["dev_accuracy"] <= note["dev"]["accuracy"]


def test_the_model_opens_in_hugging_face_with_the_same_answers(finished: Path) -> None:
    tokenizer = transformers.BertTokenizer.from_pretrained(finished / "model")
    theirs = transformers.BertForSequenceClassification.from_pretrained(finished / "model").eval()
    with torch.inference_mode():
        scores = theirs(**tokenizer("a good film", return_tensors="pt")).logits.softmax(1)[0].tolist()
    answer = bertmill.load(finished / "model").predict(["a good film"])[0]
    assert list(answer["scores"].values()) == pytest.approx(scores, abs=1e-5)


def test_killed_again_and_again_gives_the_same_bits(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    often = {"save-every": 5, "log-every": 3, "eval-every": 7, "patience": 4, "learning-rate": 1e-3}
    outcomes = []
    for name, mode in (("whole", "random:0:0"), ("killed", "random:6:1")):
        out = tmp_path / name
        words = [*flags_of(tiny, rows_file, out, **often), "--resume"]
        done = subprocess.run([sys.executable, PROGRAM, mode, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert name == "whole" or int(done.stdout.split()[-1]) > 0  # times that it was killed
        outcomes.append(outcome(out))
    assert outcomes[0] == outcomes[1]


def test_patience_is_not_forgotten_when_a_run_is_killed(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    wishes = {"patience": 2, "learning-rate": 1e-9, "epochs": 20, "eval-every": 4, "save-every": 3}
    outcomes = []
    for name, mode in (("whole", "random:0:0"), ("killed", "random:3:2")):
        words = [*flags_of(tiny, rows_file, tmp_path / name, **wishes), "--resume"]
        done = subprocess.run([sys.executable, PROGRAM, mode, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert name == "whole" or int(done.stdout.split()[-1]) > 0
        outcomes.append(outcome(tmp_path / name))
        note = json.loads((tmp_path / name / "model/bertmill.json").read_text(encoding="utf-8"))
        assert (note["best_step"], note["steps"]) == (4, 12)
    assert outcomes[0] == outcomes[1]


def test_changed_and_lost_data_are_noticed_on_resume(
    tiny: Path,
    rows_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = Path("rows.tsv")
    rows.write_bytes(rows_file.read_bytes())
    assert main([*flags_of(tiny, rows, tmp_path / "run"), "--quiet"]) == 0
    (tmp_path / "run/model").rename(tmp_path / "model")
    rows.write_bytes(rows_file.read_bytes() + b"one more film\tno\n")
    assert main([*flags_of(tiny, rows, tmp_path / "run"), "--quiet", "--resume"]) == 4
    assert "train data is not what this run began with" in capsys.readouterr().err
    rows.unlink()
    assert main([*flags_of(tiny, rows, tmp_path / "run"), "--quiet", "--resume"]) == 2
    assert f"bertmill: {rows.resolve()}: " in capsys.readouterr().err


def test_a_run_knows_its_own_settings_when_it_is_resumed(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["finetune", "--resume", "--out", str(finished)]) == 0
    assert "is finished already" in capsys.readouterr().err
    assert main(["finetune", "--resume", "--out", str(tmp_path / "none"), "--model", "minilm"]) == 2
    assert "TASK, --train must be given for a new run" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("flags", [{}, {"seeds": 2}])
def test_a_start_that_is_refused_leaves_nothing(flags: dict[str, int], tiny: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\na film\tno\n \tyes\n", encoding="utf-8")
    assert main([*flags_of(tiny, rows, tmp_path / "run", **flags), "--quiet"]) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["rows.tsv"]


@pytest.mark.parametrize("flags", [{}, {"seeds": 2}])
def test_rows_out_of_a_pipe_are_refused(
    flags: dict[str, int], tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in (str(tmp_path / "pipe"), "-"):
        assert main([*flags_of(tiny, Path(name), tmp_path / "run", **flags), "--quiet"]) == 2
        assert "cannot come out of a pipe" in capsys.readouterr().err


def test_there_must_be_a_good_row_to_measure_on(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [LabelledRow(f"row {number}", (f"film {number}",), str(number)) for number in range(40)]
    _, (drawn,) = split_rows(rows, 0.025, SPLIT_SEED, stratify=False)
    lines = [f"{row.texts[0]}\t{'many' if row == drawn else row.label}" for row in rows]
    (tmp_path / "rows.tsv").write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
    words = flags_of(tiny, tmp_path / "rows.tsv", tmp_path / "run", dev=0.025)
    words[words.index("classify")] = "regress"
    assert main([*words, "--quiet", "--on-bad-row", "skip"]) == 3
    assert "no good row is left" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_left_to_right_model_is_refused_where_nothing_would_reach_its_first_piece(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copytree(tiny, tmp_path / "model")
    BertModel.from_pretrained(tiny, causal=True).save_pretrained(model)
    assert main([*flags_of(model, rows_file, tmp_path / "run"), "--quiet"]) == 2
    assert "nothing of a text reaches [CLS], which classify looks at" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["data.json", "log.jsonl", "heldout/manifest.json", "plans/a.txt"])
def test_a_folder_with_files_of_others_is_left_alone(name: str, tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "run" / name
    file.parent.mkdir(parents=True)
    file.write_text('{"corpus": "mine"}', encoding="utf-8")
    assert main([*flags_of(tiny, rows_file, tmp_path / "run"), "--quiet"]) == 2
    assert main(["pretrain", "--corpus", str(tmp_path), "--out", str(tmp_path / "run")]) == 2
    assert file.read_text(encoding="utf-8") == '{"corpus": "mine"}'


def test_a_frozen_encoder_keeps_its_weights(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    assert main([*flags_of(tiny, rows_file, tmp_path / "run", epochs=1), "--freeze", "--quiet"]) == 0
    before = BertModel.from_pretrained(tiny).state_dict()
    after = BertModel.from_pretrained(tmp_path / "run/model").state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_patience_ends_a_training_that_gets_no_better(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    flags = flags_of(tiny, rows_file, tmp_path / "run", epochs=50, patience=2, **{"learning-rate": 1e-9})
    assert main([*flags, "--quiet"]) == 0
    note = json.loads((tmp_path / "run/model/bertmill.json").read_text(encoding="utf-8"))
    assert note["steps"] == 3 * 14  # one evaluation that is the best, two that are not; 108 rows in eights
    assert note["best_step"] == 14


def test_the_same_command_goes_on_from_any_folder(
    tiny: Path, rows_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_bytes(rows_file.read_bytes())
    (tmp_path / "tiny").symlink_to(tiny)
    monkeypatch.chdir(tmp_path)
    flags = flags_of(Path("tiny"), Path("train.tsv"), Path("run"), epochs=1, dev="dev.tsv")
    assert main([*flags, "--quiet"]) == 0
    (tmp_path / "run/model").rename(tmp_path / "model")
    assert main([*flags, "--quiet", "--resume"]) == 0
    assert (tmp_path / "run/model/model.safetensors").read_bytes() == Path("model/model.safetensors").read_bytes()
    assert main([*flags, "--quiet", "--resume", "--eval-every", "3"]) == 2  # decides which weights are the best
    assert "--eval-every cannot change" in capsys.readouterr().err


def test_rows_and_model_may_be_moved_but_not_become_others(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copytree(tiny, tmp_path / "tiny")
    rows = tmp_path / "rows.tsv"
    rows.write_bytes(rows_file.read_bytes())
    run = tmp_path / "run"
    assert main([*flags_of(model, rows, run, epochs=1), "--quiet"]) == 0
    before = (run / "model/model.safetensors").read_bytes()
    shutil.rmtree(run / "model")
    model, rows = model.rename(tmp_path / "moved"), rows.rename(tmp_path / "moved.tsv")
    assert main(["finetune", "--resume", "--out", str(run), "--quiet"]) == 2
    capsys.readouterr()
    moved = ["finetune", "--resume", "--out", str(run), "--model", str(model), "--train", str(rows), "--quiet"]
    for flags, what in ((["--dev", "0.3"], "dev"), (["--dev", str(rows)], "dev"), (["--model", "minilm"], "model")):
        assert main([*moved, *flags]) == 4
        assert f"the {what} data is not what this run began with" in capsys.readouterr().err
    assert main(moved) == 0
    assert (run / "model/model.safetensors").read_bytes() == before
    assert main([*moved, "--model", "minilm"]) == 2  # nothing is read of a finished run, so nothing is taken for it
    shutil.rmtree(run / "model")
    assert main(["finetune", "--resume", "--out", str(run), "--quiet"]) == 0  # it knows where they are now


def test_the_model_is_that_of_the_best_step(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    """At a rate that destroys what was learnt, the first evaluations are the best."""
    more = {"learning-rate": 0.3, "eval-every": 1, "epochs": 2, "seed": 1}
    assert main([*flags_of(tiny, rows_file, tmp_path / "run", **more), "--quiet"]) == 0
    note = json.loads((tmp_path / "run/model/bertmill.json").read_text(encoding="utf-8"))
    assert note["best_step"] < note["steps"]
    best = load_file(tmp_path / f"run/checkpoints/step-{note['best_step']:06d}/weights.safetensors")
    model = load_file(tmp_path / "run/model/model.safetensors")
    assert best.keys() == model.keys()
    assert all(torch.equal(best[name], model[name]) for name in best)


def test_the_model_remembers_how_long_texts_were_read(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = finished / "model"
    assert TaskModel(model).make_windows.max_length == 16
    given = RowSettings(max_length=32, stride=4, truncate=True)
    assert TaskModel(model, reading=given).make_windows.note() == {"max_length": 32, "stride": 4, "truncate": True}
    note = json.loads((model / "bertmill.json").read_text(encoding="utf-8"))
    with_stride = shutil.copytree(model, tmp_path / "with stride")
    note["windows"]["stride"] = 7
    (with_stride / "bertmill.json").write_text(json.dumps(note), encoding="utf-8")
    for given_length, stride in ((None, 7), (16, 7), (32, None)):  # that of other windows is forgotten
        made = TaskModel(with_stride, reading=RowSettings(max_length=given_length)).make_windows
        assert made.stride == stride
    text = "dull " * 50
    for flags, fate in (([], "read in windows"), (["--truncate"], "cut there")):
        assert main(["predict", str(model), "--text", text, *flags]) == 0
        assert f"1 rows are longer than 16 pieces: {fate}" in capsys.readouterr().err
    broken = shutil.copytree(model, tmp_path / "model")
    (broken / "bertmill.json").write_text('{"windows": {"max_length": "many"}}', encoding="utf-8")
    assert main(["predict", str(broken), "--text", "a film"]) == 4


def test_windows_that_would_leave_gaps_are_refused_before_anything_is_trained(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longest = BertConfig.from_pretrained(tiny).max_position_embeddings
    assert main(flags_of(tiny, rows_file, tmp_path / "run", stride=longest + 1)) == 2
    assert f"a stride of {longest + 1} would jump over pieces: a window has {longest}" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_no_model_is_told(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(tiny, tmp_path / "folder")
    (folder / "config.json").unlink()
    assert main(flags_of(folder, rows_file, tmp_path / "run")) == 2
    assert f"{folder}: is no model: there is no config.json in it" in capsys.readouterr().err


def test_a_pooler_that_is_new_learns_beside_a_frozen_encoder(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    model = shutil.copytree(tiny, tmp_path / "model")
    BertModel.from_pretrained(tiny, add_pooling_layer=False).save_pretrained(model)
    assert main([*flags_of(model, rows_file, tmp_path / "run", epochs=1), "--freeze", "--quiet"]) == 0
    before = load_file(model / "model.safetensors")
    after = BertModel.from_pretrained(tmp_path / "run/model").state_dict()
    assert after.keys() - before.keys() == {"pooler.dense.weight", "pooler.dense.bias"}
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert after["pooler.dense.bias"].abs().max() > 0  # its first value is 0


def test_a_head_is_kept_for_the_same_labels_only(
    finished: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = load_file(finished / "model/model.safetensors")["classifier.weight"]
    other, third = tmp_path / "other.tsv", tmp_path / "third.tsv"
    content = rows_file.read_text(encoding="utf-8")
    other.write_text(content.replace("\tyes", "\taye"), encoding="utf-8")
    third.write_text(content.replace("\tyes", "\taye", 20), encoding="utf-8")
    for rows, num_labels, keeps_head in ((rows_file, 2, True), (other, 2, False), (third, 3, False)):
        out = tmp_path / rows.stem
        assert main(flags_of(finished / "model", rows, out, epochs=0.01, dropout=0, **{"learning-rate": 1e-12})) == 0
        new = load_file(out / "model/model.safetensors")["classifier.weight"]
        assert len(new) == num_labels
        assert (new.shape == old.shape and torch.allclose(new, old, atol=1e-6)) == keeps_head
        assert ("new, as expected (random until trained)" in capsys.readouterr().err) != keeps_head


def test_dropout_is_that_of_the_head_too(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    model = shutil.copytree(tiny, tmp_path / "model")
    BertModel.from_pretrained(tiny, classifier_dropout=0.5).save_pretrained(model)
    assert main([*flags_of(model, rows_file, tmp_path / "run", epochs=0.01, dropout=0), "--quiet"]) == 0
    assert BertConfig.from_pretrained(tmp_path / "run/model").head_dropout_prob == 0


def test_answers_that_are_no_numbers_stop_a_training(
    tiny: Path, rows_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Classify, "metrics", lambda *_: {"accuracy": float("nan")})
    assert main([*flags_of(tiny, rows_file, tmp_path / "run", epochs=1), "--quiet"]) == 5
    assert "measured after step 14, the model's answers are not finite" in capsys.readouterr().err


def test_two_processes_learn_the_same_as_one(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    more = {"dropout": 0, "epochs": 2, "log-every": 5, "eval-every": 9, "batch-size": 9, "learning-rate": 1e-3}
    for num_processes in (1, 2):
        flags = flags_of(tiny, rows_file, tmp_path / str(num_processes), **more)
        done = torchrun(num_processes, *flags)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("model") == 1  # one process speaks
    weights = [load_file(tmp_path / f"{number}/model/model.safetensors") for number in (1, 2)]
    assert all((tensor - weights[1][name]).abs().max() <= 1e-5 for name, tensor in weights[0].items())
    logs = [
        [json.loads(line) for line in (tmp_path / f"{number}/log.jsonl").read_text(encoding="utf-8").splitlines()]
        for number in (1, 2)
    ]
    for ours, theirs in zip(*logs, strict=True):
        for line in (ours, theirs):
            line.pop("seconds", None)
        assert ours == pytest.approx(theirs, abs=1e-4)
    few = torchrun(2, *flags_of(tiny, rows_file, tmp_path / "few", **{"batch-size": 1}))
    assert few.returncode != 0
    assert "a batch of 1 cannot be shared by 2 ranks" in few.stderr


def torchrun(num_processes: int, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_processes)]
    return subprocess.run([*command, "-m", "bertmill", *words], capture_output=True, text=True, check=False)


# Every task by its commands


def rows_for(task: str) -> list[dict[str, Any]]:
    """Rows that can be learnt by looking for a word."""
    draw = random.Random(5)
    rows: list[dict[str, Any]] = []
    for _ in range(96):
        text = text_of(draw)
        words = text.split()
        if task == "regress":
            rows.append({"text": text, "label": words.count("good") / len(words)})
        elif task == "choose":
            choices = ["a good film", "a dull book"]
            draw.shuffle(choices)
            rows.append({"text": text, "choices": choices, "label": choices.index("a good film")})
        else:
            rows.append({"text": text, "label": [word for word in ("good", "bad") if word in words]})
    return rows


@pytest.mark.parametrize(
    ("words", "metric", "keys"),
    [
        (["classify", "--multi-label"], "micro_f1", ["labels", "scores"]),
        (["regress"], "pearson", ["number"]),
        (["choose"], "accuracy", ["choice", "answer", "score", "scores"]),
    ],
    ids=["multi-label", "regress", "choose"],
)
def test_other_tasks_learn_are_measured_and_answer(
    words: list[str], metric: str, keys: list[str], tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows_for(words[0])), encoding="utf-8")
    wishes = {"learning-rate": 2e-3, "epochs": 10, "dropout": 0, "eval-every": 24}
    _, _, *flags = flags_of(tiny, file, tmp_path / "run", **wishes)
    assert main(["finetune", *words, *flags, "--quiet"]) == 0
    model = str(tmp_path / "run/model")
    capsys.readouterr()
    assert main(["evaluate", model, "--data", str(file), "--json", "--quiet"]) == 0
    figures = json.loads(capsys.readouterr().out)["metrics"][metric]
    assert figures["low"] <= figures["value"] <= figures["high"]
    assert figures["value"] > 0.75
    assert main(["predict", model, str(file), "--quiet"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == 96
    assert all(list(answer) == ["id", *keys] for answer in answers)


# Answers


def test_answers_do_not_depend_on_the_batch(finished: Path) -> None:
    draw = random.Random(2)
    texts = [text_of(draw, 300 if number % 10 == 0 else 12) for number in range(60)]
    model = bertmill.load(finished / "model")
    together = model.predict(texts)
    shuffled = draw.sample(range(len(texts)), len(texts))
    again = dict(zip(shuffled, model.predict([texts[number] for number in shuffled]), strict=True))
    for number, (text, answer) in enumerate(zip(texts, together, strict=True)):
        for other in (model.predict([text])[0], again[number]):
            assert other["scores"] == pytest.approx(answer["scores"], abs=1e-5)
            assert other["label"] == answer["label"] or abs(answer["score"] - 0.5) < 1e-4


def test_a_document_of_ten_thousand_words_is_read_whole(finished: Path) -> None:
    model = bertmill.load(finished / "model")
    dull = "dull " * 10_000
    without, within = model.predict([dull, dull + "good " * 5_000])
    assert without["label"] == "no"
    assert without["scores"]["yes"] < within["scores"]["yes"]


def test_labels_of_rows_that_are_asked_about_do_not_matter(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\na good film\tforeign\na dull film\t\n", encoding="utf-8")
    assert main(["predict", str(finished / "model"), str(rows), "--quiet"]) == 0
    assert [json.loads(line)["label"] for line in capsys.readouterr().out.splitlines()] == ["yes", "no"]


def test_answers_are_found_again_by_the_id_or_the_number_of_their_row(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.tsv"
    good = [f"a {word} film" for word in ("good", "dull") * 10]
    for header, lines, ids in (
        ("text", [*good[:7], " ", *good[7:]], [*range(1, 8), *range(9, 22)]),
        ("index\ttext", [f"n{number}\t{text}" for number, text in enumerate(good)], [f"n{n}" for n in range(20)]),
    ):
        rows.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
        assert main(["predict", str(finished / "model"), str(rows), "--on-bad-row", "skip", "--quiet"]) == 0
        assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == ids


def test_a_long_document_goes_through_the_model_in_portions(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once: list[int] = []
    model = TaskModel(finished / "model", "cpu")
    model.model.register_forward_pre_hook(lambda _, given: at_once.append(given[0].num_pieces))
    example = model.task.example(LabelledRow("f:1", ("dull film " * 5_000,)))
    ((_, portions),) = model.outputs([example])
    assert max(at_once) <= PIECES_AT_ONCE < sum(at_once)
    monkeypatch.setattr("bertmill.tasks.windows.PIECES_AT_ONCE", 10**9)
    ((_, whole),) = model.outputs([example])
    assert portions == pytest.approx(whole, abs=1e-5)


def test_python_and_command_line_agree(finished: Path, rows_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(finished / "model")
    assert main(["predict", model, str(rows_file), "--quiet"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    texts = [line.split("\t")[0] for line in rows_file.read_text(encoding="utf-8").splitlines()[1:]]
    assert [answer.pop("id") for answer in printed] == list(range(1, len(texts) + 1))
    assert printed == bertmill.load(model).predict(texts)


def test_python_refuses_what_the_command_line_refuses(finished: Path) -> None:
    model = bertmill.load(finished / "model")
    for inputs in ("a text", None, {"text": "a"}, [""], [("a", " ")], [3]):
        with pytest.raises(UsageError):
            model.predict(inputs)
    with pytest.raises(DataError, match="has choices"):
        model.predict([{"text": "a", "choices": ["b", "c"]}])


@pytest.fixture(scope="module")
def untrained(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Task], Path]:
    """Models with a random head for a task, which answer all the same."""

    def make(task: Task) -> Path:
        folder = tmp_path_factory.mktemp("heads") / "model"
        torch.manual_seed(1)
        MODEL_CLASSES[task.head].from_pretrained(tiny, **task.settings()).save_pretrained(folder)
        BertTokenizer.from_pretrained(tiny).save_pretrained(folder)
        return folder

    return make


def test_a_table_of_answers_has_pairs_and_the_probability_of_every_label(
    untrained: Callable[[Task], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = untrained(Classify(("a", "b"), multi_label=True))
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "one \\u001b[1m, two", "pair": "three"}\n{"text": "four", "pair": "five"}\n')
    answers = bertmill.load(folder).predict([("one \x1b[1m, two", "three"), ("four", "five")])
    assert main(["predict", str(folder), str(rows), "--format", "csv", "--out", str(tmp_path / "a.csv")]) == 0
    text = (tmp_path / "a.csv").read_bytes().decode()
    assert "\r" not in text
    table = list(csv.DictReader(io.StringIO(text)))
    assert list(table[0]) == ["id", "labels", "score:a", "score:b", "text", "pair"]
    for row, answer in zip(table, answers, strict=True):
        assert row["labels"] == "|".join(answer["labels"])
        assert float(row["score:b"]) == pytest.approx(answer["scores"]["b"], abs=1e-5)
    assert [row["pair"] for row in table] == ["three", "five"]
    capsys.readouterr()
    assert main(["predict", str(folder), str(rows), "--format", "table"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.endswith(end) for line, end in zip(lines, ("one  [1m, two  three", "four  five"), strict=True))
    for line, answer in zip(lines, answers, strict=True):
        assert all(f"{label} {answer['scores'][label]:.3f}"[:-1] in line for label in answer["labels"])


def test_answers_do_not_take_the_place_of_the_rows(
    untrained: Callable[[Task], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = untrained(Classify(("a", "b")))
    rows = tmp_path / "rows.txt"
    rows.write_text("one\n")
    (tmp_path / "link").symlink_to(rows)
    for out in (rows, tmp_path / "link"):
        assert main(["predict", str(folder), str(rows), "--out", str(out)]) == 2
        assert f"{out}: is the file that is read; choose another --out" in capsys.readouterr().err
    assert rows.read_text() == "one\n"
    assert main(["predict", str(untrained(Choose())), "--text", "one"]) == 2
    assert "give --choice twice or more" in capsys.readouterr().err


def test_choices_are_written_and_shown_with_their_texts(
    untrained: Callable[[Task], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(untrained(Choose()))
    asked = ["--text", "She ran.", "--choice", "Then she sat.", "--choice", "Then she flew."]
    assert main(["predict", folder, *asked, "--format", "csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["answer"] == asked[2 * int(row["choice"]) + 3]
    assert json.loads(row["choices"]) == ["Then she sat.", "Then she flew."]
    assert json.loads(row["scores"])[int(row["choice"])] == float(row["score"])
    wrong = 1 - int(row["choice"])
    rows = tmp_path / "rows.jsonl"
    choices = [asked[3], asked[5]]
    rows.write_text(json.dumps({"text": "She ran.", "choices": choices, "label": wrong}) + "\n")
    assert main(["evaluate", folder, "--data", str(rows)]) == 0
    out = capsys.readouterr().out
    assert f"choice {1 - wrong}, answer {choices[1 - wrong]}, " in out
    assert f"right is {choices[wrong]}\n    She ran.\n    choice 0: Then she sat.\n    choice 1: Then she flew." in out


def test_long_texts_are_shortened_where_errors_are_shown(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "good " * 500 + "\tno\n" + "dull\tno\n")
    flags = ["--data", str(rows), "--max-length", "64", "--truncate"]
    assert main(["evaluate", str(finished / "model"), *flags]) == 0
    printed = capsys.readouterr()
    assert f"    {'good ' * 20}…" in printed.out.splitlines()
    assert "1 rows are longer than 64 pieces: cut there" in printed.err


def test_evaluate_reports_metrics_with_intervals(
    finished: Path, rows_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(finished / "model"), "--data", str(rows_file), "--json", "--quiet"]) == 0
    report = json.loads(capsys.readouterr().out)
    accuracy = report["metrics"]["accuracy"]
    assert accuracy["low"] <= accuracy["value"] <= accuracy["high"]
    right = sum(report["confusion"][number][number] for number in range(2))
    assert accuracy["value"] == pytest.approx(right / report["rows"])
    assert [each["label"] for each in report["classes"]] == ["no", "yes"]


def test_a_matrix_that_fits_on_no_screen_is_left_to_programs() -> None:
    labels = tuple(map(str, range(13)))
    judgements = np.array([[3, 3], [4, 3]])
    evaluation = Evaluation(2, {}, {}, Classify(labels).by_class(judgements), [])
    assert evaluate_command._lines(evaluation)[-1] == "  which of 13 classes is taken for which: --json tells"
    assert evaluation.to_json()["confusion"][3][3:5] == [1, 1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a film\tmaybe", "the label 'maybe' is not one of no, yes"),
        ("a film", "has 1 column, where the first row has 2"),
        (" \tno", "has an empty text in the column 'text'"),
        ("a film\tno\u200b", r"has a label with characters that cannot be printed: 'no\u200b'; remove them"),
        ("a film\t", "has an empty label in the column 'label'"),
    ],
)
def test_a_bad_row_is_one_line_with_its_place(
    line: str, message: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text(f"text\tlabel\na good film\tyes\n{line}\n", encoding="utf-8")
    assert main(["evaluate", str(finished / "model"), "--data", str(rows), "--quiet"]) == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{rows}:3: {message}" in said
    assert "--on-bad-row skip" in said


def test_a_pretrained_model_has_no_answers(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(tiny), "--text", "a film"]) == 2
    assert "is not fine-tuned for a task" in capsys.readouterr().err
