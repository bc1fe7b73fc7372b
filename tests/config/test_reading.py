"""Layers of settings, the config.toml of a run, and what may change when a run is resumed."""

from __future__ import annotations

import os
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.config.commands import PretrainSettings
from bertmill.config.fields import MAY_CHANGE, MAY_MOVE
from bertmill.config.reading import (
    MAX_TOML_BYTES,
    RUN_FILE,
    movable_fields,
    read_run_settings,
    read_settings,
    read_toml,
    resumed_settings,
    run_toml,
    unknown_name,
    with_whole_paths,
)
from bertmill.config.text_commands import TokenizeSettings
from bertmill.config.training_settings import TrainingSettings
from bertmill.errors import BertmillError, IntegrityError, UsageError
from bertmill.tasks import settings_for
from bertmill.training.finetune import finetune
from bertmill.training.pretrain import pretrain
from bertmill.training.progress import Listener
from bertmill.training.trials import finetune_once_or_more

PRETRAIN = {
    "corpus": "/data/corpus",
    "steps": 10,
    "size": "tiny",
    "learning_rate": 0.001,
    "dropout": 0.0,
    "mask_rate": 0.3,
}
FINETUNE = {"task": "classify", "model": "minilm", "train": "/data/rows.tsv", "multi_label": True}


def write_run(out: Path, settings: TrainingSettings, command: str) -> Path:
    out.mkdir(exist_ok=True)
    (out / RUN_FILE).write_text(run_toml(settings, command, {}), encoding="utf-8")
    return out


@pytest.fixture
def pretrain_run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "pre", read_settings(PretrainSettings, {**PRETRAIN, "out": "pre"}), "pretrain")


@pytest.fixture
def finetune_run(tmp_path: Path) -> Path:
    given = {**FINETUNE, "out": "fine", "format": "csv", "columns": "text=1,label=2"}
    return write_run(tmp_path / "fine", read_settings(settings_for("classify"), given), "finetune")


def one_line(caught: pytest.ExceptionInfo[BertmillError]) -> str:
    message = str(caught.value)
    assert "\n" not in message
    return message


# Layers


def test_flags_win_over_the_file_of_config_and_both_over_the_run(tmp_path: Path, pretrain_run: Path) -> None:
    stored = read_settings(PretrainSettings, {**PRETRAIN, "out": "pre", "keep": 3, "log_every": 3, "seed": 3})
    write_run(pretrain_run, stored, "pretrain")
    file = tmp_path / "settings.toml"
    file.write_text("log-every = 2\nkeep = 2\n")  # dashes or underscores
    flags = {"out": pretrain_run, "resume": True, "keep": 1}
    settings = read_settings(PretrainSettings, flags, toml_path=file)
    assert (settings.keep, settings.log_every, settings.seed, settings.steps) == (1, 2, 3, 10)
    settings = read_settings(PretrainSettings, {**flags, "resume": False, "corpus": "c"}, toml_path=file)
    assert (settings.keep, settings.log_every, settings.seed, settings.steps) == (1, 2, 0, None)


def test_the_file_of_config_may_ask_to_resume(tmp_path: Path, pretrain_run: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f'out = "{pretrain_run}"\nresume = true\n')
    assert read_settings(PretrainSettings, {}, toml_path=file).steps == 10


def test_resuming_without_a_run_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read_settings(PretrainSettings, {**PRETRAIN, "out": tmp_path / "none", "resume": True})
    assert settings.steps == 10
    monkeypatch.chdir(tmp_path)
    (tmp_path / RUN_FILE).write_text("no TOML")
    with pytest.raises(UsageError, match=r"^--out is required"):
        read_settings(PretrainSettings, {**PRETRAIN, "resume": True})


@pytest.mark.parametrize(("name", "value"), [("steps", 20), ("epochs", 2.0), ("budget", "1h")])
def test_another_duration_is_refused_on_resume(pretrain_run: Path, name: str, value: Any) -> None:
    given = read_settings(PretrainSettings, {"out": pretrain_run, "resume": True, name: value})
    before = read_run_settings(PretrainSettings, pretrain_run, "pretrain")
    with pytest.raises(UsageError, match=f"config.toml: {name} cannot change when a run is resumed"):
        resumed_settings(given, before, is_finished=False)


def test_one_error_lists_every_problem_of_flags_and_files(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('keep = 0\nlog_evry = 3\nseed = "x"\n')
    with pytest.raises(UsageError) as caught:
        read_settings(PretrainSettings, {"steps": "y", "seed": 1}, unknown_words=["--stepz", "word"], toml_path=file)
    problems = str(caught.value).split(" · ")
    assert sorted(problem.split(":")[0] for problem in problems) == sorted(
        [
            "unknown flag --stepz; did you mean --steps?",
            "unexpected argument 'word'",
            "--corpus is required",
            "--steps",
            str(file),
            str(file),
        ]
    )
    assert f"{file}: unknown key log_evry; did you mean log_every?" in problems
    assert any(problem.startswith(f"{file}: keep: ") and problem.endswith("(got 0)") for problem in problems)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a = ", "is not valid TOML: "), (b"a = '\xff'", "is not valid TOML: "), (None, "cannot be")],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "settings.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_toml(file)
    assert one_line(caught).startswith(f"{file}: {message}")


@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "folder", "large.toml", "nested.toml"])
def test_a_file_that_cannot_be_a_settings_file_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "large.toml").write_bytes(b"#" * (MAX_TOML_BYTES + 1))
    (tmp_path / "nested.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(UsageError) as caught:
        read_toml(tmp_path / name)
    assert one_line(caught).startswith(f"{tmp_path / name}: ")


def test_a_byte_order_mark_is_not_a_key(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("seed = 3\n", encoding="utf-8-sig")
    assert read_toml(file) == {"seed": 3}


def test_a_key_may_be_an_alias(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("json = true\n")
    assert read_settings(TokenizeSettings, {"model": "minilm"}, toml_path=file).as_json
    file.write_text("as_json = true\n")
    with pytest.raises(UsageError, match="unknown key as_json"):
        read_settings(TokenizeSettings, {"model": "minilm"}, toml_path=file)


def test_unknown_names_get_suggestions() -> None:
    assert str(unknown_name("task", "tga", ["tag", "answer"])) == (
        "there is no task called 'tga'; did you mean tag?; known: tag, answer"
    )
    assert str(unknown_name("task", "xyz", ["tag"])) == "there is no task called 'xyz'; known: tag"


# The config.toml of a run


def test_config_toml_has_format_command_and_all_decided_settings(finetune_run: Path) -> None:
    lines = (finetune_run / RUN_FILE).read_text("utf-8").splitlines()
    assert lines[:2] == ["format = 1", 'command = "finetune"']
    assert lines[3:5] == ["", "[settings]"]
    settings = read_toml(finetune_run / RUN_FILE)
    assert settings["format"] == "csv"  # that of the rows
    assert (settings["batch_size"], settings["multi_label"], settings["seed"]) == (16, True, 0)
    assert not {"metric", "learning_rate", "epochs"} & settings.keys()  # not set
    kind = settings_for("classify")
    given = {**FINETUNE, "out": finetune_run, "format": "csv", "columns": "text=1,label=2"}
    read = read_run_settings(kind, finetune_run, "finetune")
    assert read.model_dump() == read_settings(kind, given).model_dump()


@given(text=st.text(st.characters(exclude_categories=["Cs"])), rate=st.floats(1e-12, 1e3), seed=st.integers(0, 2**62))
def test_any_value_comes_back_from_config_toml(
    tmp_path_factory: pytest.TempPathFactory, text: str, rate: float, seed: int
) -> None:
    out = tmp_path_factory.getbasetemp() / "any-value"
    given_settings = {**FINETUNE, "out": out, "metric": text, "learning_rate": rate, "seed": seed}
    settings = read_settings(settings_for("classify"), given_settings)
    write_run(out, settings, "finetune")
    assert read_run_settings(type(settings), out, "finetune") == settings


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    settings = read_settings(PretrainSettings, {**PRETRAIN, "corpus": "a\udcff", "out": "run"})
    with pytest.raises(UsageError, match="corpus is not valid UTF-8"):
        run_toml(settings, "pretrain", {})


def test_the_config_of_a_run_serves_as_config_of_another(finetune_run: Path) -> None:
    settings: Any = read_settings(settings_for("classify"), {"out": "other"}, toml_path=finetune_run / RUN_FILE)
    assert (settings.out, settings.format, settings.multi_label) == (Path("other"), "csv", True)


DAMAGES: dict[str, tuple[Callable[[str], str], str]] = {
    "newer format": (
        lambda text: text.replace("format = 1\n", "format = 2\n"),
        "config.toml: has format 2, but this version of bertmill supports format 1; upgrade bertmill",
    ),
    "no format": (
        lambda text: text.replace("format = 1\n", ""),
        "config.toml: has format None, but this version of bertmill supports format 1",
    ),
    "earlier version": (
        lambda text: text.partition("[settings]\n")[2],
        "pre: is a run of an earlier version, which this version cannot read; start a new run",
    ),
    "empty": (lambda text: "", "config.toml: is empty; restore the file, or start a new run"),
    "edited": (
        lambda text: text.replace("steps = 10", "steps = 20"),
        "config.toml: the settings were edited after the run had started; restore the file, or start a new run",
    ),
    "seed removed": (lambda text: text.replace("seed = 0\n", ""), "config.toml: the settings were edited after the"),
    "other command": (
        lambda text: text.replace('"pretrain"', '"finetune"'),
        "pre: is a run of `bertmill finetune`; resume it with that command",
    ),
    "wrong value": (
        lambda text: text.replace("steps = 10", 'steps = "ten"'),
        "config.toml: is damaged: steps: input should be a valid integer, unable to parse string as an integer; resto",
    ),
    "unknown key": (
        lambda text: text.replace("[settings]\n", "[settings]\nstepz = 3\n"),
        "config.toml: is damaged: stepz: extra inputs are not permitted; restore the file, or start a new run",
    ),
    "no learning rate": (
        lambda text: text.replace("learning_rate = 0.001\n", ""),
        "config.toml: is damaged: learning_rate: field required; restore the file, or start a new run",
    ),
    "no settings": (lambda text: text.partition("[settings]\n")[0], "corpus: field required; restore the file"),
    "settings are not a table": (
        lambda text: text.partition("\n[settings]\n")[0] + "settings = 3\n",
        "config.toml: is damaged: ",
    ),
    "truncated": (lambda text: text[: text.index("steps") + 7], "config.toml: is not valid TOML: "),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_run_that_cannot_be_resumed_gives_one_clear_line(pretrain_run: Path, damage: str) -> None:
    change, message = DAMAGES[damage]
    config = pretrain_run / RUN_FILE
    config.write_text(change(config.read_text("utf-8")))
    with pytest.raises(BertmillError) as caught:  # on the command line
        read_settings(PretrainSettings, {"out": pretrain_run, "resume": True})
    assert one_line(caught).startswith(f"{pretrain_run.parent}/")
    assert message in one_line(caught)
    assert "None" not in one_line(caught) or damage == "no format"
    settings = read_settings(PretrainSettings, {**PRETRAIN, "out": pretrain_run})
    with pytest.raises(BertmillError) as caught:  # from Python
        pretrain(settings.model_copy(update={"resume": True}), Listener())
    assert message in one_line(caught)
    assert isinstance(caught.value, UsageError if damage == "other command" else IntegrityError)


@pytest.mark.parametrize(
    ("before", "after"), [("log_every = 50", "log_every = 7"), ('corpus = "/data/corpus"', 'corpus = "/corpus"')]
)
def test_settings_that_may_change_may_be_edited(pretrain_run: Path, before: str, after: str) -> None:
    config = pretrain_run / RUN_FILE
    assert before in config.read_text("utf-8")
    config.write_text(config.read_text("utf-8").replace(before, after))
    assert read_settings(PretrainSettings, {"out": pretrain_run, "resume": True}).steps == 10


def test_a_run_without_a_hash_of_its_settings_is_read(pretrain_run: Path) -> None:
    config = pretrain_run / RUN_FILE
    lines = config.read_text("utf-8").replace("seed = 0", "seed = 1").splitlines(keepends=True)
    config.write_text("".join(line for line in lines if not line.startswith("settings_sha256")))
    assert read_run_settings(PretrainSettings, pretrain_run, "pretrain").seed == 1


def test_a_run_needs_resume_to_continue(pretrain_run: Path) -> None:
    settings = read_settings(PretrainSettings, {**PRETRAIN, "out": pretrain_run})
    with pytest.raises(UsageError, match="pre: already contains a run; resume it, or choose another folder"):
        pretrain(settings, Listener())


# What may change


def other_value(kind: Any, value: Any) -> Any:
    """A value of the same type that differs."""
    if typing.get_origin(kind) is typing.Annotated:
        return other_value(typing.get_args(kind)[0], value)
    if typing.get_origin(kind) is Literal:
        return next(each for each in typing.get_args(kind) if each != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return type(value)(f"{value}x") if value is not None else "other"


def cases() -> list[Any]:
    runs: dict[str, tuple[type[TrainingSettings], dict[str, Any]]] = {
        "pretrain": (PretrainSettings, PRETRAIN),
        "finetune": (settings_for("classify"), FINETUNE),
        "trials": (settings_for("classify"), FINETUNE | {"seeds": 3}),
    }
    return [
        pytest.param(kind, given, name, id=f"{run}-{name}")
        for run, (kind, given) in runs.items()
        for name in kind.model_fields
    ]


@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize(("kind", "given_settings", "name"), cases())
def test_markers_decide_what_may_change_when_a_run_is_resumed(
    kind: type[TrainingSettings], given_settings: dict[str, Any], name: str, is_finished: bool
) -> None:
    before = read_settings(kind, {**given_settings, "out": "/run"})
    field = kind.model_fields[name]
    value = other_value(field.annotation, getattr(before, name))
    now = before.model_copy(update={name: value})
    is_longer = name in kind.durations and getattr(before, name) is not None  # a finished run may be extended
    if is_finished and is_longer:
        assert dict(resumed_settings(now, before, is_finished=True)) == {**dict(before), name: value}
    elif MAY_CHANGE in field.metadata or (MAY_MOVE in field.metadata and not is_finished):
        resumed = resumed_settings(now, before, is_finished=is_finished)
        assert dict(resumed) == {**dict(before), name: getattr(with_whole_paths(now), name)}
    else:
        with pytest.raises(UsageError, match=f"config.toml: {name} cannot change when a run is resumed; omit it, or"):
            resumed_settings(now, before, is_finished=is_finished)


def test_settings_that_are_not_given_keep_their_values() -> None:
    before = read_settings(PretrainSettings, {**PRETRAIN, "out": "/run", "seed": 5, "keep": 7})
    now = read_settings(PretrainSettings, {"corpus": "/data/corpus", "out": "/run", "resume": True, "log_every": 9})
    resumed = resumed_settings(now, before, is_finished=False)
    assert (resumed.seed, resumed.keep, resumed.steps, resumed.log_every, resumed.resume) == (5, 7, 10, 9, True)


def test_precision_auto_keeps_the_decision_of_the_run() -> None:
    before = read_settings(PretrainSettings, {**PRETRAIN, "out": "/run", "precision": "bf16"})
    now = before.model_copy(update={"precision": "auto"})
    assert resumed_settings(now, before, is_finished=False).precision == "bf16"


def test_a_setting_left_open_keeps_the_decision_of_the_run() -> None:
    before = read_settings(PretrainSettings, {**PRETRAIN, "out": "/run", "threads": 3})
    now = before.model_copy(update={"learning_rate": None, "steps": None, "threads": None})
    resumed = resumed_settings(now, before, is_finished=False)
    assert (resumed.learning_rate, resumed.steps, resumed.threads) == (0.001, 10, None)  # threads may change


def test_open_settings_of_a_fine_tuning_run_keep_its_decisions() -> None:
    decided = {"metric": "f1", "eval_every": 7, "max_length": 64, "stride": 16, "truncate": True}
    before = read_settings(settings_for("classify"), {**FINETUNE, "out": "/run", **decided})
    now = before.model_copy(update=dict.fromkeys(decided))
    assert dict(resumed_settings(now, before, is_finished=False)) == dict(before)


@pytest.mark.parametrize(
    ("kind", "given_settings", "name", "value"),
    [
        (PretrainSettings, PRETRAIN, "heldout", "0.1"),
        (settings_for("classify"), FINETUNE, "dropout", 0.2),
        (settings_for("classify"), FINETUNE, "grid", "paper"),
        (settings_for("classify"), FINETUNE | {"multi_label": False}, "class_weights", "balanced"),
    ],
)
def test_none_is_a_value_of_settings_that_the_run_does_not_decide(
    kind: type[TrainingSettings], given_settings: dict[str, Any], name: str, value: Any
) -> None:
    before = read_settings(kind, {**given_settings, "out": "/run", name: value})
    now = before.model_copy(update={name: None})
    with pytest.raises(UsageError, match=f"config.toml: {name} cannot change when a run is resumed"):
        resumed_settings(now, before, is_finished=False)


def test_all_settings_that_cannot_change_are_listed() -> None:
    before = read_settings(PretrainSettings, {**PRETRAIN, "out": "/run"})
    now = before.model_copy(update={"seed": 1, "batch_size": 8})
    with pytest.raises(UsageError, match=r"config.toml: batch_size, seed cannot change"):
        resumed_settings(now, before, is_finished=False)


@pytest.mark.parametrize("more", [{}, {"seeds": 2}, {"grid": "paper"}])
def test_the_rules_hold_for_single_runs_and_trials(tmp_path: Path, more: dict[str, Any]) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n")
    before = read_settings(settings_for("classify"), {**FINETUNE, "train": rows, "out": tmp_path / "run", **more})
    out = write_run(tmp_path / "run", before, "finetune")
    now = before.model_copy(update={"resume": True})
    for name, value in {"weight_decay": 0.5, "multi_label": False, "max_length": 64, "columns": "text=a"}.items():
        with pytest.raises(UsageError, match=f"config.toml: {name} cannot change when a run is resumed"):
            finetune_once_or_more(now.model_copy(update={name: value}), Listener())
    with pytest.raises(UsageError, match=r"gone.tsv: does not exist; set `train` to its new location"):
        finetune_once_or_more(now.model_copy(update={"train": tmp_path / "gone.tsv"}), Listener())
    (out / "model").mkdir()  # finished: data is not read again, so it may not move
    assert finetune_once_or_more(now.model_copy(update={"log_every": 7, "keep": 1}), Listener()) == out / "model"
    with pytest.raises(UsageError, match=r"config.toml: train cannot change when a run is resumed"):
        finetune_once_or_more(now.model_copy(update={"train": tmp_path / "gone.tsv"}), Listener())


def test_a_run_of_another_command_is_not_resumed(pretrain_run: Path, finetune_run: Path) -> None:
    with pytest.raises(UsageError, match="fine: is a run of `bertmill finetune`; resume it with that command"):
        read_settings(PretrainSettings, {"out": finetune_run, "resume": True})
    with pytest.raises(UsageError, match="pre: is a run of `bertmill pretrain`"):
        read_settings(settings_for("classify"), {"out": pretrain_run, "resume": True})
    settings = read_settings(settings_for("classify"), {**FINETUNE, "out": pretrain_run})
    with pytest.raises(UsageError, match="pre: is a run of `bertmill pretrain`"):
        finetune(settings.model_copy(update={"resume": True}), Listener())


# Paths


def test_paths_become_absolute_and_names_fractions_and_standard_input_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    given_settings = {**FINETUNE, "train": "rows.tsv", "out": "run", "multi_label": False}
    kind = settings_for("classify")
    whole = with_whole_paths(read_settings(kind, given_settings))
    assert (whole.train, whole.dev, whole.model, whole.out) == (tmp_path / "rows.tsv", None, "minilm", Path("run"))
    whole = with_whole_paths(read_settings(kind, {**given_settings, "model": "folder", "dev": "d.tsv", "train": "-"}))
    assert (whole.train, whole.dev, whole.model) == (Path("-"), str(tmp_path / "d.tsv"), str(tmp_path / "folder"))
    moved = {"model": whole.model, "train": whole.train, "dev": whole.dev, "tags": None, "dev_tags": None}
    assert movable_fields(whole) == moved
