"""Command-line words become settings, whatever their order; help is grouped and includes the options of tasks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.cli.flags import make_parser, settings_from_words
from bertmill.cli.main import COMMANDS
from bertmill.config.commands import COMMAND_SETTINGS, FillSettings, FinetuneSettings, PredictSettings, PretrainSettings
from bertmill.config.fields import POSITIONAL
from bertmill.config.reading import flag_of, read_settings, run_toml
from bertmill.errors import UsageError
from bertmill.tasks import TASKS, settings_for
from bertmill.tasks.answer.task import AnswerQuestions
from bertmill.tasks.choose import Choose
from bertmill.tasks.classify import Classify
from tests.conftest import RunCommand
from tests.finetuned import MakeModel

REQUIRED = ["--model", "minilm", "--train", "rows.tsv", "--out", "run"]


def finetune_words(*words: str) -> Any:
    settings = settings_from_words("finetune", [*words, *REQUIRED])
    assert isinstance(settings, FinetuneSettings)
    return settings


def help_of(capsys: pytest.CaptureFixture[str], command: str, *words: str) -> str:
    assert settings_from_words(command, [*words, "--help"]) is None
    return capsys.readouterr().out


def groups_of(help_text: str) -> dict[str, str]:
    """The text of each group of a help text, by title."""
    groups: dict[str, str] = {}
    title = ""
    for line in help_text.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            title = line.removesuffix(":")
        groups[title] = groups.get(title, "") + line + "\n"
    return groups


def entries(group: str) -> list[str]:
    """The first line of each flag or argument of a group."""
    return [line for line in group.splitlines() if line.startswith("  ") and line[2] != " "]


# Words


@pytest.mark.parametrize(
    "words",
    [
        ["model", "--top-k", "3", "one [MASK]", "two [MASK]"],
        ["--top-k", "3", "model", "one [MASK]", "two [MASK]"],
        ["model", "one [MASK]", "two [MASK]", "--top-k", "3"],
        ["model", "one [MASK]", "--top-k=3", "two [MASK]"],
    ],
)
def test_flags_may_appear_anywhere_among_arguments(words: list[str]) -> None:
    settings = settings_from_words("fill", words)
    assert isinstance(settings, FillSettings)
    assert (settings.model, settings.texts, settings.top_k) == ("model", ["one [MASK]", "two [MASK]"], 3)


def test_an_optional_argument_may_be_omitted() -> None:
    settings = settings_from_words("predict", ["model", "--text", "a film"])
    assert isinstance(settings, PredictSettings)
    assert settings.file is None
    settings = settings_from_words("predict", ["model", "--quiet", "rows.tsv"])
    assert isinstance(settings, PredictSettings)
    assert (settings.file, settings.quiet) == ("rows.tsv", True)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: text.strip()))
def test_any_value_after_an_equals_sign_arrives_unchanged(text: str) -> None:
    settings = settings_from_words("predict", ["model", f"--text={text}"])
    assert isinstance(settings, PredictSettings)
    assert settings.text == text


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ("predict", ["model", "rows.tsv", "three"], "unexpected argument 'three'"),
        ("predict", ["model", "--txt", "a"], r"unknown flag --txt; did you mean --text\?"),
        ("predict", ["rows.tsv"], "after MODEL, give either a file"),
        ("predict", ["--model", "m", "--text", "a"], "unknown flag --model; MODEL is an argument without a flag$"),
        ("predict", ["model", "--text", "a", "--steps", "5"], "--steps; it is a flag of "),
        ("finetune", ["classify", "--lr", "1e-4", "--bs=8"], "--lr; did you mean --learning-rate.*--bs; .* --batch-si"),
        ("predict", ["model", "--text"], "argument --text: expected one argument; `bertmill predict --help` lists"),
        ("fill", [], "MODEL is required: .* · TEXT… is required: "),
        ("finetune", [], "^TASK is required: .* · --model is required: .* · --train is required: "),
        ("finetune", ["--resume"], "^--out is required to resume a run: its folder$"),
        (
            "pretrain",
            ["--step=3"],
            r"unknown flag --step; did you mean --steps\? · --corpus is required: ",
        ),
        ("finetune", ["classify", "--epochs", "inf"], "--epochs: .*finite"),
        ("finetune", ["classify", "--learning-rate", "nan"], "--learning-rate: .*finite"),
        ("finetune", ["classify", "--weight-decay", "inf"], "--weight-decay: .*finite"),
        ("finetune", ["classify", "--batch-size", "x"], r"--batch-size: .*valid integer.* \(got 'x'\)"),
    ],
)
def test_wrong_words_are_reported_together(command: str, words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        settings_from_words(command, words)


# Tasks


@pytest.mark.parametrize(
    "words",
    [
        ["classify", "--class-weights", "balanced"],
        ["--class-weights", "balanced", "classify"],
        ["--class-weights=balanced", "classify"],
        ["--metric", "tag", "classify", "--class-weights", "balanced"],
        ["--seed", "3", "classify", "--class-weights", "balanced"],
    ],
)
def test_options_of_a_task_are_flags_of_finetune_wherever_the_task_appears(words: list[str]) -> None:
    settings = finetune_words(*words)
    assert (settings.task, settings.class_weights) == ("classify", "balanced")


def test_a_flag_value_that_is_the_name_of_a_task_is_not_the_task() -> None:
    words = ["--out", "tag", "classify", "--model", "answer", "--train", "choose"]
    settings = settings_from_words("finetune", words)
    assert isinstance(settings, FinetuneSettings)
    assert (settings.task, settings.out, settings.model) == ("classify", Path("tag"), "answer")
    words = ["--out", "answer", "classify", "--multi-label", "--model", "tag", "--train", "choose"]
    joined: Any = settings_from_words("finetune", words)
    assert (joined.task, joined.out, joined.multi_label) == ("classify", Path("answer"), True)


@pytest.mark.parametrize("task", ["regress", "tag"])
def test_an_option_of_another_task_is_an_unknown_flag(task: str) -> None:
    with pytest.raises(UsageError, match="unknown flag --class-weights"):
        finetune_words(task, "--class-weights", "balanced")


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="--class-weights and --label-smoothing cannot be used with --multi-label"):
        finetune_words("classify", "--multi-label", "--label-smoothing", "0.1")


@pytest.mark.parametrize("words", [["clasify"], ["clasify", "--help"], ["--seed", "1", "clasify"]])
def test_an_unknown_task_gets_a_suggestion(words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        settings_from_words("finetune", words)
    known = ", ".join(TASKS)
    assert str(caught.value) == f"there is no task called 'clasify'; did you mean classify?; known: {known}"


def test_the_task_may_come_from_the_file_of_config(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('task = "classify"\nclass-weights = "balanced"\n')
    for words in (["--config", str(file)], [f"--config={file}"]):
        settings = finetune_words(*words)
        assert (settings.task, settings.class_weights) == ("classify", "balanced")
    with pytest.raises(UsageError, match=r"settings.toml: unknown key class_weights"):
        finetune_words("tag", "--config", str(file))


@pytest.mark.parametrize("given", [["classify"], []])
def test_a_run_is_resumed_with_its_task_and_options(tmp_path: Path, given: list[str]) -> None:
    flags = {"task": "classify", "model": "minilm", "train": "rows.tsv", "out": tmp_path, "multi_label": True}
    (tmp_path / "config.toml").write_text(run_toml(read_settings(settings_for("classify"), flags), "finetune", {}))
    for words in (["--out", str(tmp_path), "--resume"], ["--resume", f"--out={tmp_path}"]):
        settings: Any = settings_from_words("finetune", [*given, *words])
        assert (settings.task, settings.multi_label, settings.model) == ("classify", True, "minilm")
    with pytest.raises(UsageError, match=r"config.toml: task cannot change when a run is resumed; omit it, or start a"):
        settings_from_words("finetune", ["tag", "--out", str(tmp_path), "--resume"])


# Help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_lists_every_flag_once_and_required_ones_first(capsys: pytest.CaptureFixture[str], command: str) -> None:
    text = help_of(capsys, command)
    groups = groups_of(text)
    order = ["required settings", "common settings", "task settings", "other settings", "files and help"]
    assert list(groups)[1:] == [title for title in order if title in groups]
    usage = groups[""].splitlines()[0]
    assert usage.startswith(f"usage: bertmill {command} ")
    for name, field in COMMAND_SETTINGS[command].model_fields.items():
        flag = flag_of(name, field) if POSITIONAL not in field.metadata else name.removesuffix("s").upper()
        first_words = ((title, line.split()[0].rstrip(",…")) for title in groups for line in entries(groups[title]))
        (title,) = (title for title, word in first_words if word == flag)
        assert (title == "required settings") == field.is_required()
        if field.is_required():
            assert flag in usage
    assert "--config FILE.toml" in groups["files and help"]


def test_common_settings_come_before_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    groups = groups_of(help_of(capsys, "pretrain"))
    assert "--steps N" in groups["common settings"]
    assert "--weight-decay X" in groups["other settings"]
    groups = groups_of(help_of(capsys, "predict"))
    assert groups["required settings"].splitlines()[1].split()[0] == "MODEL"
    assert "FILE " in groups["common settings"]
    assert "--text TEXT" in groups["common settings"]


@pytest.mark.parametrize("words", [["classify", "--help"], ["--help", "classify"], ["-h", "--seed", "1", "classify"]])
def test_finetune_classify_help_shows_its_options(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert settings_from_words("finetune", words) is None
    options = groups_of(capsys.readouterr().out)["task settings"]
    assert [line.split()[0] for line in options.splitlines()[1:] if line.startswith("  --")] == [
        "--multi-label,",
        "--class-weights",
        "--label-smoothing",
    ]


@pytest.mark.parametrize("task", TASKS)
def test_help_of_a_task_shows_its_own_options_only(capsys: pytest.CaptureFixture[str], task: str) -> None:
    text = help_of(capsys, "finetune", task)
    own = settings_for(task).model_fields.keys() - FinetuneSettings.model_fields.keys()
    others = {
        name for other in TASKS for name in settings_for(other).model_fields
    } - FinetuneSettings.model_fields.keys()
    for name in others:
        assert (f"--{name.replace('_', '-')}" in text) == (name in own)
    assert ("task settings" in groups_of(text)) == bool(own)


def test_options_of_predict_are_those_of_the_task_of_the_model(
    capsys: pytest.CaptureFixture[str], untrained: MakeModel, tmp_path: Path
) -> None:
    answerer, chooser = str(untrained(AnswerQuestions())), str(untrained(Choose()))
    classifier = str(untrained(Classify(("a", "b"))))
    request = ["--text", "a", "--question", "b"]
    (tmp_path / "settings.toml").write_text(f'model = "{answerer}"\ntop_k = 3\n')
    in_file = ["--config", str(tmp_path / "settings.toml")]
    for words in ([answerer, "--top-k", "3"], ["--top-k", "3", answerer], ["--top-k=3", answerer], in_file):
        settings: Any = settings_from_words("predict", [*words, *request])
        assert (settings.model, settings.top_k) == (answerer, 3)
    assert "--top-k" in groups_of(help_of(capsys, "predict", answerer))["task settings"]
    settings = settings_from_words("predict", [classifier, "--top-k", "3", "--text", "a"])
    assert (settings.model, settings.top_k) == (classifier, 3)
    assert "instead of all scores" in help_of(capsys, "predict", classifier)
    for words in ([], [chooser], ["nowhere"]):
        assert "--top-k" not in help_of(capsys, "predict", *words)
    with pytest.raises(UsageError, match=r"^--top-k does not apply to a model for the task choose$"):
        settings_from_words("predict", ["--top-k", "3", chooser, *request])
    with pytest.raises(UsageError, match="unknown key top_k"):
        settings_from_words("predict", [chooser, *in_file, *request])
    with pytest.raises(UsageError, match="no model folder, installed model or cached model is named 'nowhere'"):
        settings_from_words("predict", ["nowhere", "--top-k", "3", *request])
    with pytest.raises(UsageError, match="MODEL is required"):
        settings_from_words("predict", ["--top-k", "3", *request])


@pytest.mark.parametrize("task", TASKS)
def test_the_usage_of_a_task_has_its_name(capsys: pytest.CaptureFixture[str], task: str) -> None:
    assert help_of(capsys, "finetune", task).startswith(f"usage: bertmill finetune {task} --model ")


def test_help_of_finetune_alone_says_how_to_see_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys, "finetune")
    assert "bertmill finetune TASK --help" in text
    assert "task settings" not in groups_of(text)


@pytest.mark.parametrize("words", [["--help"], ["finetune", "--help"], ["predict", "--help"]])
def test_help_imports_no_torch(words: list[str]) -> None:
    program = f"import sys; from bertmill.cli.main import main; main({words!r}); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_defaults_are_shown() -> None:
    text = " ".join(make_parser("pretrain", PretrainSettings).format_help().split())
    assert "(default: mini)" in text
    assert "(default: 80/10/10)" in text
    assert "(default: None)" not in text
    assert "(default: False)" not in text


def test_an_argument_is_not_suggested_as_a_flag(bertmill: RunCommand, tmp_path: Path) -> None:
    assert "did you mean" not in bertmill("inspect", "--folder", str(tmp_path)).stderr


@pytest.mark.parametrize(
    ("command", "word", "flag"),
    [
        ("finetune", "--lr", "--learning-rate"),
        ("finetune", "--learning_rate", "--learning-rate"),
        ("finetune", "--lerning-rate", "--learning-rate"),
        ("finetune", "--bs", "--batch-size"),
        ("finetune", "--batch", "--batch-size"),
        ("finetune", "--num-epochs", "--epochs"),
        ("finetune", "--num_train_epochs", "--epochs"),
        ("finetune", "--epoch", "--epochs"),
        ("finetune", "--max-len", "--max-length"),
        ("finetune", "--max_seq_length", "--max-length"),
        ("pretrain", "--max_seq_length", "--length"),
        ("finetune", "--validation-file", "--dev"),
        ("finetune", "--output-dir", "--out"),
        ("finetune", "-o", "--out"),
        ("finetune", "-m", "--model"),
        ("pretrain", "--max-steps", "--steps"),
        ("pretrain", "--time", "--budget"),
        ("predict", "--output", "--out"),
    ],
)
def test_the_names_that_other_tools_use_get_a_suggestion(command: str, word: str, flag: str) -> None:
    with pytest.raises(UsageError, match=rf"unknown flag {word}; did you mean {flag}\?"):
        settings_from_words(command, [word, "3"])


@pytest.mark.parametrize("word", ["--gpu-count", "--xyz", "-x"])
def test_a_word_unlike_any_flag_gets_no_suggestion(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings_from_words("finetune", [word])
    assert "did you mean" not in str(caught.value)


def test_the_value_of_an_unknown_flag_is_not_a_second_problem() -> None:
    words = ["--text", "a", "model", "--lr", "3", "--verbos", "rows.tsv", "--bs=8"]
    with pytest.raises(UsageError) as caught:
        settings_from_words("predict", words)
    assert "unexpected argument" not in str(caught.value)
    assert "'3'" not in str(caught.value)
    with pytest.raises(UsageError) as caught:
        settings_from_words("predict", ["--lr", "3", "model", "--text", "a"])
    assert "either a file" not in str(caught.value)


@pytest.mark.parametrize(
    ("task", "words", "problem"),
    [
        ("classify", ["--tags", "seq.out"], "--tags does"),
        ("answer", ["--separator", "-", "--quotes", "no", "--dev-tags", "x"], "--dev-tags, --quotes, --separator do"),
        ("tag", ["--preset=sst2", "--truncate"], "--preset, --truncate do"),
    ],
)
def test_a_flag_that_does_not_apply_to_the_task_is_the_only_problem(
    capsys: pytest.CaptureFixture[str], task: str, words: list[str], problem: str
) -> None:
    for ordered in ([task, *words], [*words, task]):
        with pytest.raises(UsageError) as caught:
            finetune_words(*ordered)
        assert str(caught.value) == f"{problem} not apply to this task"
    text = help_of(capsys, "finetune", task)
    assert not any(word.split("=")[0] in text for word in words if word.startswith("--"))
