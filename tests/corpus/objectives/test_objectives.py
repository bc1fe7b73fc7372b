"""An objective is one file and one line in the registry, and nothing else knows its name."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import bertmill
from bertmill.cli.main import main
from bertmill.corpus.objectives import OBJECTIVES, load_objective
from bertmill.errors import UsageError
from tests.project.known_names import lines_that_know

SOURCE = Path(bertmill.__file__).parent
CLASSES = {base.__name__ for name in OBJECTIVES for base in type(load_objective(name)).__mro__} - {"ABC", "object"}


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "toy", "tests.corpus.objectives.toy:LastPiece")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("objectives")
    stories = ["\n".join(f"Line {line} of story {story}." for line in range(12)) for story in range(5)]
    (folder / "stories.txt").write_text("\n\n".join(stories))
    flags = ["--vocab", "minilm", "--out", str(folder / "corpus"), "--workers", "1", "--quiet"]
    assert main(["corpus", str(folder / "stories.txt"), *flags]) == 0
    return folder / "corpus"


@pytest.mark.usefixtures("toy")
def test_a_toy_objective_can_be_planned_and_shown(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(corpus), "--show", "2", "--length", "16", "--objective", "toy"]) == 0
    shown = capsys.readouterr().out
    assert "toy, length 16: 60 instances in the first epoch, 6.0 pieces on average\n" in shown
    assert "instance 2: 8 pieces, a toy\n  [CLS] line " in shown
    assert "[MASK]‹.› [SEP]" in shown


@pytest.mark.usefixtures("toy")
def test_a_toy_objective_can_be_pretrained(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--size", "tiny", "--steps", "4", "--length", "16", "--batch-size", "8", "--threads", "1"]
    words = ["pretrain", "--corpus", str(corpus), "--out", str(tmp_path / "run"), "--objective", "toy", *flags]
    assert main([*words, "--log-every", "2", "--heldout", "0.2"]) == 0
    assert "last piece loss" in capsys.readouterr().err
    lines = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert {"last_loss", "last_accuracy"} < lines[0].keys()
    assert not any("mlm" in key for line in lines for key in line)
    assert any("heldout_perplexity" in line for line in lines)
    provenance = json.loads((tmp_path / "run/model/bertmill.json").read_text())
    assert provenance["objective"] == "toy"


@pytest.mark.parametrize("command", ["pretrain", "inspect"])
def test_an_unknown_objective_gives_one_clear_error(
    command: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {"pretrain": ["--corpus", str(corpus), "--out", str(tmp_path / "run")], "inspect": [str(corpus)]}
    assert main([command, *words[command], "--objective", "mlm+nps"]) == 2
    assert capsys.readouterr().err == (
        "bertmill: there is no objective called 'mlm+nps'; did you mean mlm+nsp?; known: mlm+nsp, mlm+sop, mlm, clm\n"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_registered_objective_has_metrics_for_all_its_sums(name: str) -> None:
    objective = load_objective(name)
    figures = objective.heldout_figures(dict.fromkeys(objective.sum_names, 1.0))
    head = "clm" if name == "clm" else "mlm"
    assert {"loss", f"{head}_loss", f"{head}_accuracy", "perplexity"} <= figures.keys()
    assert objective.entropy_figure == f"{head}_loss"
    assert len(objective.describe_figures(figures)) >= 2


def test_an_unknown_name_is_rejected() -> None:
    with pytest.raises(UsageError, match="no objective called ''"):
        load_objective("")


def test_objectives_are_loaded_without_torch() -> None:
    code = (
        "import sys; from bertmill.corpus.objectives import OBJECTIVES, load_objective; "
        "list(map(load_objective, OBJECTIVES)); import bertmill.corpus.build; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_no_other_module_depends_on_which_objectives_exist() -> None:
    own_files = set((SOURCE / "corpus/objectives").glob("*.py"))
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in SOURCE.rglob("*.py")
        if path not in own_files
        for line in lines_that_know(path.read_text(encoding="utf-8"), OBJECTIVES, CLASSES)
    ]
    assert not found


@pytest.mark.parametrize(
    "code",
    [
        'x == "clm"',
        '"mlm" != x',
        'x in ("mlm+nsp", y)',
        'x not in {"clm"}',
        'y = {"mlm": 1}',
        'y = dict([("a", 1)]) | {**z, "clm": 2}',
        "y = dict(clm=1)",
        'y["mlm+sop"] = 1',
        'y.get("clm")',
        'match x:\n    case "mlm" | "clm":\n        pass',
        'x.startswith("mlm")',
        "isinstance(x, PairObjective)",
        "isinstance(x, (int, full_sentences.CausalLanguageModeling))",
        "issubclass(x, int | Objective)",
        "type(x) is NextSentencePrediction",
        'type(x).__name__ == "FullSentences"',
        "y = {SentenceOrderPrediction: 1}",
        "match x:\n    case PairObjective():\n        pass",
    ],
)
def test_the_search_finds_a_planted_violation(code: str) -> None:
    assert list(lines_that_know(code, OBJECTIVES, CLASSES))


@pytest.mark.parametrize("code", ["x: Objective = load_objective(name)", "isinstance(x, Planner)", 'y["labels"] == z'])
def test_the_search_ignores_valid_code(code: str) -> None:
    assert not list(lines_that_know(code, OBJECTIVES, CLASSES))
