"""Damaged files of all kinds give a documented exit code and one line, in bounded time and memory.

`make slow` runs these for up to five minutes. BERTMILL_FUZZ_CASES multiplies the number of cases, BERTMILL_FUZZ_SEED
changes them.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertmill.cli.main import main
from bertmill.corpus import shard_texts
from bertmill.corpus.build import build_corpus
from bertmill.errors import NonFiniteError
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.loop import Trainer
from tests.finetuned import WORDS, text_of
from tests.project.fuzzing import (
    MAX_EXTRA_BYTES,
    check_command,
    compressed,
    damage_file,
    damage_folder,
    fresh_copy,
    peak_bytes,
)

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("BERTMILL_FUZZ_SEED", "0"))
FACTOR = float(os.environ.get("BERTMILL_FUZZ_CASES", "1"))
MAX_STEPS = 4  # of a training
TASKS = ("classify", "tag", "answer")

pyarrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")


def cases(name: str, count: int) -> Iterator[tuple[str, random.Random]]:
    """Yield a name and a source of random numbers for each case."""
    for number in range(int(count * FACTOR)):
        yield f"{name} {SEED}/{number}", random.Random(f"{name} {SEED}/{number}")


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    before = peak_bytes()
    yield
    assert peak_bytes() < before + MAX_EXTRA_BYTES


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged setting may ask for a long training."""
    original = Trainer._learn

    def learn(self: Trainer, *arguments: Any) -> bool:
        self.num_steps = getattr(self, "num_steps", 0) + 1  # type: ignore[attr-defined]
        if self.num_steps > MAX_STEPS:  # type: ignore[attr-defined]
            raise NonFiniteError("enough steps")
        return original(self, *arguments)

    monkeypatch.setattr(Trainer, "_learn", learn)
    monkeypatch.setattr("bertmill.machine.RATE_SIZES", (64,))


@pytest.fixture(scope="module")
def models(classifier: Path, tagger: Path, answerer: Path) -> dict[str, Path]:
    return {"classify": classifier, "tag": tagger, "answer": answerer}


@pytest.fixture(scope="module")
def inputs(
    rows_file: Path, tagged_file: Path, questions_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Path]]:
    """A few labeled rows for each task in every format."""
    folder = tmp_path_factory.mktemp("inputs")
    header, *rows = [line.split("\t") for line in rows_file.read_text().splitlines()[:8]]
    records = [dict(zip(header, row, strict=True)) for row in rows]
    words = tagged_file.read_text().split("\n\n")[1:6]
    tagged = [[line.split(" ") for line in sentence.split("\n")] for sentence in words]
    tag_records = [{"words": [word for word, _ in each], "tags": [tag for _, tag in each]} for each in tagged]
    questions = json.loads(questions_file.read_text())
    questions["data"] = questions["data"][:5]
    flat = [
        {"question": each["question"], "passage": of["context"], "answers": each["answers"]}
        for part in questions["data"]
        for of in part["paragraphs"]
        for each in of["qas"]
    ]
    contents = {
        "classify.tsv": "\n".join("\t".join(row) for row in [header, *rows]),
        "classify.csv": "\n".join(",".join(f'"{cell}"' for cell in row) for row in [header, *rows]),
        "classify.jsonl": "\n".join(map(json.dumps, records)),
        "classify.json": json.dumps(records, indent=1),
        "tag.conll": "\n\n".join(words),
        "tag.tsv": "\n\n".join(words).replace(" ", "\t"),
        "tag.jsonl": "\n".join(map(json.dumps, tag_records)),
        "tag.json": json.dumps(tag_records),
        "answer.json": json.dumps(questions),
        "answer.jsonl": "\n".join(map(json.dumps, flat)),
    }
    for name, content in contents.items():
        (folder / name).write_text(content + "\n", encoding="utf-8")
    for task, of_task in (("classify", records), ("tag", tag_records), ("answer", flat)):
        parquet.write_table(pyarrow.Table.from_pylist(of_task), folder / f"{task}.parquet")
    return {task: sorted(folder.glob(f"{task}.*")) for task in TASKS}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = random.Random(0)
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = [" ".join(text_of(draw) for _ in range(3)) + "." if draw.random() < 0.8 else "" for _ in range(200)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def corpus(tiny: Path, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora") / "corpus"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_texts, "SHARD_CHARACTERS", 3000)
        build_corpus([str(text)], BertTokenizer.from_pretrained(tiny), folder, workers=1)
    return folder


def pretraining(corpus: Path, out: Path) -> list[object]:
    flags = ("--size", "tiny", "--length", 16, "--batch-size", 4, "--threads", 1, "--initial-weights", "random")
    return ["pretrain", "--corpus", corpus, "--out", out, "--steps", 3, *flags]


def test_damaged_model_folders(models: dict[str, Path], inputs: dict[str, list[Path]], tmp_path: Path) -> None:
    for what, draw in cases("model", 120):
        task = draw.choice(TASKS)
        folder = fresh_copy(models[task], tmp_path / "model")
        damage = f"{what}: {damage_folder(folder, sorted(path.name for path in folder.iterdir()), draw)}"
        file = inputs[task][0]
        commands: list[list[object]] = [
            ["predict", folder, file],
            ["evaluate", folder, file],
            ["inspect", folder],
            ["inspect", folder, "--json"],
            ["check", folder],
            ["tokenize", "--model", folder, "--text", "good [MASK] film"],
            ["fill", folder, "a good [MASK]"],
        ]
        check_command(draw.choice(commands), tmp_path, damage)
        if check_command(["check", folder, "--accept"], tmp_path, damage) == 0:
            for words in (["check", folder], ["inspect", folder]):
                assert check_command(words, tmp_path, damage) == 0, damage


def test_damaged_vocabularies(tiny: Path, text: Path, tmp_path: Path) -> None:
    files = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")
    for what, draw in cases("vocabulary", 80):
        folder = tmp_path / "vocabulary"
        fresh_copy(tiny, folder)
        for path in folder.iterdir():
            if path.name not in files:
                path.unlink()
        damage = f"{what}: {damage_folder(folder, files, draw)}"
        vocabulary = draw.choice([folder, folder / "vocab.txt"])
        commands: list[list[object]] = [
            ["tokenize", "--model", vocabulary, text],
            ["corpus", text, "--vocab", vocabulary, "--out", tmp_path / "corpus", "--workers", 1],
            ["inspect", vocabulary],
            ["check", vocabulary],
        ]
        check_command(draw.choice(commands), tmp_path, damage)
        fresh_copy(tiny, tmp_path / "corpus")  # removes the corpus, if there is one
        fresh_copy(text, tmp_path / "text.txt")


def test_damaged_corpora(corpus: Path, tmp_path: Path) -> None:
    names = sorted(str(path.relative_to(corpus)) for path in corpus.rglob("*") if path.is_file())
    for what, draw in cases("corpus", 100):
        folder = fresh_copy(corpus, tmp_path / "corpus")
        damage = f"{what}: {damage_folder(folder, [*names, *['manifest.json'] * len(names)], draw)}"
        commands: list[list[object]] = [
            ["inspect", folder],
            ["inspect", folder, "--json"],
            ["inspect", folder, "--show", 2, "--objective", draw.choice(["mlm", "mlm+nsp", "mlm+sop", "clm"])],
            ["check", folder],
            pretraining(folder, tmp_path / f"run-{what.replace('/', '-')}"),
        ]
        check_command(draw.choice(commands), tmp_path, damage)


def test_damaged_runs(corpus: Path, finished: Path, tmp_path: Path) -> None:
    pretrained = tmp_path / "pretrained"
    assert main([str(word) for word in [*pretraining(corpus, pretrained), "--save-every", 1]]) == 0
    for what, draw in cases("run", 80):
        source = draw.choice([pretrained, finished])
        run = fresh_copy(source, tmp_path / "run")
        if draw.random() < 0.7:
            fresh_copy(corpus, run / "model")
            for path in sorted((run / "model").rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            (run / "model").rmdir()
        names = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
        weighted = [*names, *[name for name in names if name.startswith(("config", "log", "eval", "checkp"))] * 3]
        damage = f"{what}: {damage_folder(run, weighted, draw)}"
        config = run / "config.toml"
        if config.is_file() and re.search(rb"\d{4}", re.sub(rb'"[^"\n]*"', b"", config.read_bytes())):
            continue  # a setting may be valid, and ask for much memory
        resume = "pretrain" if source == pretrained else "finetune"
        commands: list[list[object]] = [
            *([[resume, "--out", run, "--resume"]] * 3),
            ["report", run],
            ["report", run, source, "--out", tmp_path / "report.html"],
            ["inspect", run / "model"],
            ["predict", run / "model", "--text", "good"],
            ["predict", run, "--text", "good"],
        ]
        check_command(draw.choice(commands), tmp_path, damage)


def test_damaged_rows(models: dict[str, Path], inputs: dict[str, list[Path]], tmp_path: Path) -> None:
    for what, draw in cases("rows", 300):
        task = draw.choice(TASKS)
        source = draw.choice(inputs[task])
        path = fresh_copy(source, tmp_path / source.name)
        damage_file(path, draw)
        if path.is_file() and draw.random() < 0.3:
            path = compressed(path, draw)
        more = draw.choice([[], [], ["--on-bad-row", "skip"]])
        commands: list[list[object]] = [
            ["predict", models[task], path, *more],
            ["evaluate", models[task], path, *more],
        ]
        check_command(draw.choice(commands), tmp_path, f"{what}: {source.name}")
        path.unlink(missing_ok=True) if not path.is_dir() else path.rmdir()


def test_damaged_rows_in_training(
    models: dict[str, Path], inputs: dict[str, list[Path]], tiny: Path, tmp_path: Path
) -> None:
    for what, draw in cases("training", 30):
        task = draw.choice(TASKS)
        source = draw.choice(inputs[task])
        path = fresh_copy(source, tmp_path / source.name)
        damage_file(path, draw)
        flags: tuple[object, ...] = ("--model", tiny, "--out", tmp_path / f"run-{what.replace('/', '-')}", "--quiet")
        flags += ("--epochs", 1, "--batch-size", 4, "--threads", 1, *draw.choice([(), ("--on-bad-row", "skip")]))
        if task == "classify":
            flags += draw.choice([(), (), ("--multi-label",)])
        train, dev = draw.choice([(path, source), (source, path), (path, 0.3)])
        check_command(["finetune", task, "--train", train, "--dev", dev, *flags], tmp_path, f"{what}: {source.name}")
        path.unlink(missing_ok=True) if not path.is_dir() else path.rmdir()


def test_damaged_text(tiny: Path, text: Path, tmp_path: Path) -> None:
    for what, draw in cases("text", 100):
        path = tmp_path / draw.choice(["text.txt", "text.jsonl"])
        lines = text.read_text().split("\n")[: draw.choice([3, 60])]
        records = [json.dumps({"text": line}) for line in lines]
        encoding = draw.choice(["utf-8", "utf-8", "utf-16", "utf-8-sig"])
        path.write_text("\n".join(records if path.suffix == ".jsonl" else lines), encoding=encoding)
        if path.suffix == ".txt" or encoding == "utf-8":
            damage_file(path, draw)
        if path.is_file() and draw.random() < 0.5:
            path = compressed(path, draw)
        out = tmp_path / f"out-{what.replace('/', '-')}"
        commands: list[list[object]] = [
            ["tokenize", "--model", tiny, path, "--json"],
            ["vocab", path, "--out", out, "--size", 120, "--workers", 1],
            ["corpus", path, "--vocab", tiny, "--out", out, "--workers", 1],
        ]
        words = draw.choice(commands)
        check_command(words, tmp_path, what)
        for leftover in tmp_path.glob("text*"):
            leftover.rmdir() if leftover.is_dir() and not leftover.is_symlink() else leftover.unlink()


def test_damaged_settings_files(tiny: Path, text: Path, tmp_path: Path) -> None:
    lines = [f'model = "{tiny}"', f'files = ["{text}"]', 'text-field = "text"', "cased = false", "json = true"]
    for what, draw in cases("settings", 80):
        path = tmp_path / "settings.toml"
        path.write_text("\n".join(lines) + "\n")
        damage_file(path, draw)
        check_command(["tokenize", "--config", path], tmp_path, what)
        path.unlink(missing_ok=True) if not path.is_dir() else path.rmdir()


def test_requests_of_any_text(models: dict[str, Path], tmp_path: Path) -> None:
    for what, draw in cases("request", 60):
        task = draw.choice(TASKS)
        words = draw.choices([*WORDS, "\x1b[31m", "\udcff", "\u202e", "", "中文", "[MASK]", "e\u0301", "a" * 500], k=5)
        argument = " ".join(words)  # "\udcff" is what an invalid byte becomes
        more = draw.choice([(), ("--output-format", "csv"), ("--output-format", "jsonl")])
        check_command(["predict", models[task], "--text", argument, *more], tmp_path, what)
