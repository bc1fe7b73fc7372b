"""Tests for the registry: a task is one file and one line, folders record it, and other code knows no task names."""

from __future__ import annotations

import ast
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bertmill
from bertmill.checkpoint.names import read_metadata
from bertmill.cli.main import main
from bertmill.errors import IntegrityError, UsageError
from bertmill.model.bert import BertForSequenceClassification
from bertmill.model.config import BertConfig
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.source import RowFile
from bertmill.tasks import TASKS, load_task, settings_for, task_of_folder
from bertmill.tasks.answer.task import AnswerQuestions
from bertmill.tasks.base import AnyTask
from bertmill.tasks.choose import Choose
from bertmill.tasks.classify import Classify
from bertmill.tasks.regress import Regress
from bertmill.tasks.tag.task import Tag
from tests.finetuned import MakeModel, RunMain, finetune_words, text_of
from tests.project.known_names import lines_that_know

SOURCE = Path(bertmill.__file__).parent

# A toy task


@pytest.fixture
def shout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "shout", "tests.tasks.toy_task:Shout")


@pytest.mark.usefixtures("shout")
def test_a_task_of_one_file_is_trained_evaluated_and_used_from_the_command_line(
    tiny: Path, tmp_path: Path, run_main: RunMain, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(0)
    rows = tmp_path / "rows.tsv"
    texts = [text_of(draw) + draw.choice(["!", "?", "."]) for _ in range(120)]
    rows.write_text("\n".join(["text", *texts]) + "\n", encoding="utf-8")
    more = {"learning_rate": 2e-3, "epochs": 12, "dropout": 0, "mark": "?"}
    assert run_main(*finetune_words(tiny, rows, tmp_path / "run", "shout", **more)) == f"{tmp_path / 'run/model'}\n"
    model = tmp_path / "run/model"
    metadata = json.loads((model / "bertmill.json").read_text(encoding="utf-8"))
    assert (metadata["task"], metadata["mark"], metadata["metric"]) == ("shout", "?", "accuracy")
    evaluation = json.loads(run_main("evaluate", model, rows, "--json", "--quiet"))
    assert evaluation["metrics"]["accuracy"]["value"] > 0.9
    answers = [json.loads(line)["shouts"] for line in run_main("predict", model, rows, "--quiet").splitlines()]
    assert sum(answer == text.endswith("?") for answer, text in zip(answers, texts, strict=True)) > 100
    assert run_main("predict", model, "--text", "good film?", "--output-format", "table") == "shout  good film?\n"
    assert bertmill.load(model).predict(["good film?", "good film!"]) == [{"shouts": True}, {"shouts": False}]
    assert main(["finetune", "shout", "--help"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: bertmill finetune shout --model")
    assert "Tell shouting from talking." in printed
    assert "the character that a shout ends with" in printed


@pytest.mark.parametrize("recorded", ["shout", "classify", ["tag"], 7])
def test_a_recorded_task_that_is_unknown_or_does_not_match_the_head_is_rejected(
    recorded: object, untrained: MakeModel
) -> None:
    config = BertConfig.from_pretrained(untrained(Choose()))
    with pytest.raises(
        IntegrityError, match=r"bertmill\.json: the recorded task .* unknown or does not match the head"
    ):
        task_of_folder(config, {"task": recorded}, Path("folder"))
    assert task_of_folder(config, {"task": "pretrain"}, Path("folder")) == Choose()


def test_the_error_for_an_unknown_task_lists_the_known_tasks() -> None:
    with pytest.raises(
        UsageError, match=r"there is no task called 'clasify'; did you mean classify\?; known: classify"
    ):
        load_task("clasify")


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_its_name_and_its_options(name: str) -> None:
    task = load_task(name)
    assert task.name == name
    assert settings_for(name).model_fields.keys() >= task.Options.model_fields.keys()


# Model folders

EVERY_TASK: dict[str, AnyTask] = {
    "classify": Classify(("a", "b")),
    "multi-label": Classify(("a", "b"), multi_label=True),
    "regress": Regress(),
    "choose": Choose(),
    "tag": Tag(("O", "B-X", "I-X"), has_spans=True),
    "answer": AnswerQuestions(),
}


@pytest.mark.parametrize("name", EVERY_TASK)
def test_the_help_of_a_task_shows_a_row_the_columns_and_the_metrics(
    name: str, tmp_path: Path, run_main: RunMain
) -> None:
    task = EVERY_TASK[name]
    printed = run_main("finetune", task.name, "--help")
    rows, columns, metrics = (printed.split(f"\n{part}:")[1] for part in ("rows", "columns", "metrics"))
    (tmp_path / "row.jsonl").write_text(rows[rows.index("{") : rows.index("}") + 1])
    (row,) = task.read(RowFile(str(tmp_path / "row.jsonl")), task.Options(), labeled=True)
    assert row.texts
    assert ("text" in columns.split("\n")[0]) != ("columns" in task.Options.unused)
    default, *others = task.selection_metrics
    assert f"{default} (default)" in metrics
    assert all(other in metrics for other in others)


@pytest.mark.parametrize("name", EVERY_TASK)
def test_the_task_of_a_folder_without_metadata_is_recognized_by_its_head(name: str, untrained: MakeModel) -> None:
    task = EVERY_TASK[name]
    folder = untrained(task)
    assert read_metadata(folder) == {}
    assert task_of_folder(BertConfig.from_pretrained(folder), {}, folder) == task


def test_the_recorded_task_is_authoritative(tiny: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    folder = shutil.copytree(tiny, tmp_path / "model")
    BertForSequenceClassification.from_pretrained(tiny, num_labels=1).save_pretrained(folder)
    config = BertConfig.from_pretrained(folder)
    assert task_of_folder(config, {}, folder) == Regress()
    assert task_of_folder(config, {"task": "regress"}, folder) == Regress()
    assert task_of_folder(config, {"task": "classify"}, folder) == Classify(("LABEL_0",))
    (folder / "bertmill.json").write_text('{"format": 1, "task": "classify"}', encoding="utf-8")
    assert bertmill.load(folder).predict(["a film"])[0]["label"] == "LABEL_0"


def test_a_folder_without_a_head_has_no_task(tiny: Path) -> None:
    with pytest.raises(UsageError, match="the model is not fine-tuned for a task"):
        task_of_folder(BertConfig.from_pretrained(tiny), {}, tiny)
    with pytest.raises(IntegrityError, match="the recorded task 'classify' is unknown or"):
        task_of_folder(BertConfig.from_pretrained(tiny), {"task": "classify"}, tiny)


OLD_METADATA = {  # written by version 0.1, without a format number
    "task": "classify",
    "labels": ["a", "b"],
    "multi_label": False,
    "metric": "accuracy",
    "windows": {"max_length": 16, "stride": None, "truncate": False},
    "model": "/somewhere/tiny",
    "train_sha256": "00",
    "dev_share": "0.1",
    "made_by": "bertmill 0.1.0",
    "seed": 0,
    "steps": 10,
    "best_step": 10,
    "seconds": 1.0,
    "dev": {"accuracy": 1.0},
}


def test_folders_without_a_format_number_can_be_opened(untrained: MakeModel, tmp_path: Path) -> None:
    folder = shutil.copytree(untrained(EVERY_TASK["classify"]), tmp_path / "model")
    (folder / "bertmill.json").write_text(json.dumps(OLD_METADATA, indent=1), encoding="utf-8")
    assert set(bertmill.load(folder).predict(["a film"])[0]["scores"]) == {"a", "b"}


def test_a_newer_format_is_a_one_line_error(
    untrained: MakeModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(untrained(EVERY_TASK["classify"]), tmp_path / "model")
    (folder / "bertmill.json").write_text(json.dumps({"format": 2, **OLD_METADATA}), encoding="utf-8")
    with pytest.raises(IntegrityError):
        bertmill.load(folder).predict(["a film"])
    assert main(["predict", str(folder), "--text", "a film"]) == 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "bertmill.json: has format 2, but this version of bertmill supports format 1" in said


# Requests

TEXT = st.text(min_size=1).filter(str.strip)
PAIR = st.fixed_dictionaries({"text": TEXT}, optional={"pair": TEXT})
REQUESTS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "classify": PAIR,
    "regress": PAIR,
    "choose": st.fixed_dictionaries(
        {"text": TEXT, "choices": st.lists(TEXT, min_size=2, max_size=4)}, optional={"pair": TEXT}
    ),
    "tag": st.fixed_dictionaries({"words": st.lists(st.text(min_size=1), min_size=1)})
    | st.fixed_dictionaries({"text": TEXT}),
    "answer": st.fixed_dictionaries({"question": TEXT, "passage": TEXT}),
}


@pytest.mark.parametrize("name", TASKS)
@given(data=st.data())
def test_the_fields_of_a_row_are_a_request_for_the_same_row(name: str, data: st.DataObject) -> None:
    task = load_task(name)
    row = task.request(data.draw(REQUESTS[name]))
    assert task.request(row.fields()) == row


WRONG: st.SearchStrategy[Any] = st.none() | st.integers() | st.just(" ") | st.lists(st.none() | st.just(""), max_size=3)


@pytest.mark.parametrize("name", TASKS)
@given(data=st.data())
def test_messages_about_a_request_name_fields_and_not_flags(name: str, data: st.DataObject) -> None:
    fields = data.draw(REQUESTS[name])
    changed = data.draw(st.sampled_from([*fields, "label"]))
    fields = {**fields, changed: data.draw(WRONG)}
    with pytest.raises(BadRowError) as caught:
        load_task(name).request(fields)
    message = str(caught.value)
    assert "--" not in message.replace(repr(fields[changed]), "")
    assert changed.rstrip("s") in message


# Code outside the tasks does not depend on task names


CLASSES = {path.partition(":")[2] for path in TASKS.values()} | {"Task", "SequenceTask"}


def lines_that_know_tasks(code: str) -> list[int]:
    return list(lines_that_know(code, TASKS, CLASSES, field_names={"answer"}))


def lines_that_read_architectures(code: str) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute | ast.Constant)
        and "architectures" in (getattr(node, "attr", None), getattr(node, "value", None))
    ]


def test_code_outside_the_tasks_does_not_depend_on_task_names() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        inside, code = path.relative_to(SOURCE), path.read_text(encoding="utf-8")
        if inside.parts[0] != "tasks":
            found += [f"{inside}:{line} knows a task" for line in lines_that_know_tasks(code)]
        # Two packages read and write Hugging Face's config.json. In tasks, only `has_head` reads its architectures.
        if inside.parts[0] not in ("tasks", "model", "checkpoint"):
            found += [f"{inside}:{line} reads architectures" for line in lines_that_read_architectures(code)]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "if settings.task == 'tag': pass",
        "if 'answer' != task.name: pass",
        "if task.name in ('classify', 'regress'): pass",
        "match task.name:\n    case 'choose': pass",
        "readers = {'tag': read_tags}",
        "readers = {'tag': read_tags, 'answer': read_questions, 'other': read_table}",
        "if isinstance(task, Classify): pass",
        "if isinstance(task, (int, tasks.classify.Classify)): pass",
        "if isinstance(task, int | Tag): pass",
        "if issubclass(kind, SequenceTask): pass",
        "if type(task) is Tag: pass",
        "if kind is Tag: pass",
        "match task:\n    case Tag(): pass",
        "readers = {Tag: 1}",
        "readers['tag'] = 1",
        "d.get('tag')",
        "dict(tag=1)",
        "x.startswith('tag')",
        "type(t).__name__ == 'Tag'",
        "t in frozenset({'tag'})",
        "readers = {'answer': read_questions}",
        "readers = {'answer': read_questions, 'tag': read_tags}",
        "readers = {'tag': read_tags, 'other': read_table}",
    ],
)
def test_the_search_finds_a_planted_violation(code: str) -> None:
    assert lines_that_know_tasks(code)


@pytest.mark.parametrize("code", ["if 'BertForMultipleChoice' in config.architectures: 1", "content['architectures']"])
def test_the_search_finds_a_planted_use_of_architectures(code: str) -> None:
    assert lines_that_read_architectures(code)
    assert not lines_that_know_tasks(code)


@pytest.mark.parametrize("code", ["y = {'answer': 1, 'score': 2}", "task: Task = load_task(name)", "x['text'] == z"])
def test_the_search_ignores_harmless_code(code: str) -> None:
    assert not lines_that_know_tasks(code)
