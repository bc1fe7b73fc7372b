"""The settings of every command. Each field is a flag, a TOML key, a line of help and a line in docs/commands.md."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bertmill.config.fields import (
    COMMON,
    MAX_LENGTH,
    MAY_CHANGE,
    MAY_MOVE,
    NAME_OR_PATH,
    PATH,
    POSITIONAL,
    TIME,
    Encoding,
    Folder,
    Heldout,
    MaskMix,
    MaxBadRows,
    Phases,
    Quotes,
    Seconds,
    Separator,
    SizeName,
    Threads,
    heldout_share,
)
from bertmill.config.notation import setting
from bertmill.config.settings import Settings
from bertmill.config.text_commands import CorpusSettings, TokenizeSettings, VocabSettings
from bertmill.config.training_settings import TrainingFields, TrainingSettings


class PretrainFields(TrainingFields):
    """Fields shared by the settings and the resolved settings of a pre-training run."""

    corpus: Annotated[Path, PATH, MAY_MOVE] = Field(description="corpus folder made by `bertmill corpus`")
    objective: Annotated[str, COMMON] = Field("mlm", description="pre-training objective")
    length: Annotated[Phases, COMMON] = Field(
        "128", description="pieces per instance, or lengths with fractions of the run: 128:0.9,512:0.1"
    )
    initial_weights: Literal["corpus", "random"] = Field(
        "corpus", description="compute the weights of a new model from corpus statistics, or draw them at random"
    )
    short_seq_prob: float = Field(0.1, ge=0, le=1, description="fraction of instances with a random shorter length")
    mask_mix: MaskMix = Field(
        "80/10/10", description="percentages of selected pieces: replaced by [MASK] / by a random piece / unchanged"
    )
    whole_words: bool = Field(False, description="select all pieces of a word or none")
    fixed_masks: bool = Field(False, description="use the same masks in every epoch")
    log_every: Annotated[int, MAY_CHANGE] = Field(50, ge=1, description="steps between log lines")
    eval_every: Annotated[int, MAY_CHANGE] = Field(1000, ge=1, description="steps between held-out evaluations")
    workers: Annotated[int, MAY_CHANGE] = Field(
        1, ge=0, le=1024, description="threads that prefetch batches; 0 disables prefetching"
    )


class PretrainSettings(TrainingSettings, PretrainFields):
    """Pre-train a BERT model on a corpus, or continue pre-training a model."""

    recorded = (("size", "init"), ("learning_rate",), ("dropout",), ("mask_rate",), ("steps", "epochs", "budget"))
    durations = ("steps", "epochs", "budget")  # mutually exclusive
    out: Annotated[Path, MAY_CHANGE, COMMON] = Field(
        Path("runs/pretrain-DATE-TIME"), description="run folder for settings, log, checkpoints and the model"
    )
    size: Annotated[SizeName | None, COMMON] = Field(None, description="size of a new model (default: mini)")
    init: Annotated[str | None, NAME_OR_PATH, MAY_MOVE, COMMON] = Field(
        None, description="continue pre-training this model instead of training a new one"
    )
    steps: Annotated[int | None, COMMON] = Field(None, ge=1, le=10**12, description="train for this many steps")
    epochs: Annotated[float | None, COMMON] = Field(
        None, gt=0, le=1e6, description="train for this many epochs (default: 1)"
    )
    budget: Annotated[Seconds | None, TIME, COMMON] = Field(
        None, description="train for a fixed time such as 30m or 2h (a plain number is seconds)"
    )
    learning_rate: Annotated[float | None, COMMON] = Field(
        None, gt=0, description="peak learning rate (default: depends on model size and initial weights)"
    )
    dropout: float | None = Field(
        None, ge=0, lt=1, description="dropout probability (default: 0, or 0.1 for four or more epochs)"
    )
    mask_rate: float | None = Field(
        None,
        gt=0,
        le=1,
        description="fraction of pieces to select for prediction (default: 0.3, or 0.15 for four or more epochs)",
    )
    heldout: Annotated[Heldout | None, PATH, COMMON] = Field(
        None,
        description="held-out text: a file, folder or glob, or a fraction such as 0.01 of the corpus's documents to "
        "exclude from training",
    )

    @model_validator(mode="after")
    def _exclusive(self) -> Self:
        durations = [name for name in self.durations if getattr(self, name) is not None]
        if len(durations) > 1:
            raise ValueError(f"{' and '.join(map(setting, durations))} are mutually exclusive")
        return self


DEFAULT_MAX_BAD_ROWS = "5%"
TAGS = "file with the tags of each line, if the rows are sentences in a text file (task tag)"


class RowSettings(Settings):
    """Settings for reading rows."""

    columns: Annotated[str | None, COMMON] = Field(
        None, description="columns to use, such as text=sentence,label=stars; use column numbers if there is no header"
    )
    preset: Annotated[str | None, COMMON] = Field(
        None, description="columns of a known dataset: sst2, cola, mrpc, rte, stsb, …"
    )
    format: str | None = Field(None, description="file format; depends on the task (default: from the file suffix)")
    separator: Separator | None = Field(
        None, description="column separator: one character, or tab (default: detected in .csv files, otherwise a tab)"
    )
    quotes: Quotes | None = Field(
        None,
        description="standard: quotes enclose fields; literal: quotes are ordinary characters "
        "(default: standard in .csv, else literal)",
    )
    encoding: Encoding = None
    on_bad_row: Literal["stop", "skip"] = Field(
        "stop", description="what to do with an unusable row: stop, or skip and count it"
    )
    max_bad_rows: MaxBadRows = Field(
        DEFAULT_MAX_BAD_ROWS, description="stop if more rows than this are skipped: a number or a percentage"
    )

    @model_validator(mode="after")
    def _skipped_if_limited(self) -> Self:
        if self.max_bad_rows != DEFAULT_MAX_BAD_ROWS and self.on_bad_row == "stop":
            raise ValueError("`max_bad_rows` needs `on_bad_row='skip'`")
        return self


class WindowSettings(Settings):
    """Settings for inputs that are longer than the model reads."""

    max_length: Annotated[int | None, COMMON] = Field(
        None, ge=5, description="pieces per window (default: depends on the task and the model)"
    )
    stride: int | None = Field(None, ge=1, description="pieces between window starts (default: depends on the task)")
    truncate: bool | None = Field(None, description="read only the first window of a long input")


class FinetuneSettings(TrainingSettings, RowSettings, WindowSettings):
    """Fine-tune a model on labeled rows. `bertmill finetune TASK --help` also lists the task's options."""

    durations = ("epochs",)

    task: Annotated[str, POSITIONAL] = Field(description="task to learn")
    model: Annotated[str, NAME_OR_PATH, MAY_MOVE] = Field(
        description="pre-trained model: a folder, an installed model (minilm) or a name on the Hub"
    )
    train: Annotated[Path, PATH, MAY_MOVE] = Field(description="file of labeled rows to train on")
    dev: Annotated[Heldout | None, PATH, MAY_MOVE, COMMON] = Field(
        None,
        description="dev set: a file, or a fraction of the training rows (default: 0.1; classify, regress and tag "
        "cross-validate instead if there are few rows)",
    )
    tags: Annotated[Path | None, PATH, MAY_MOVE] = Field(None, description=TAGS)
    dev_tags: Annotated[Path | None, PATH, MAY_MOVE] = Field(None, description="file with the tags of a --dev file")
    method: Annotated[Literal["auto", "probe", "full"], COMMON] = Field(
        "auto",
        description="probe fits a linear model to vectors of the unchanged encoder, full trains all weights, auto "
        "compares both and keeps the better one",
    )
    portable: bool = Field(False, description="choose only among models that transformers can open")
    budget: Annotated[Seconds | None, TIME, COMMON] = Field(
        None,
        description="time for the whole command, such as 2m: without enough time, auto keeps the probe, and full "
        "takes fewer steps",
    )
    epochs: Annotated[float | None, COMMON] = Field(
        None, gt=0, le=1e6, description="train for this many epochs (default: depends on the task and the rows)"
    )
    learning_rate: Annotated[float | None, COMMON] = Field(
        None,
        gt=0,
        description="peak learning rate, reached after a tenth of the steps (default: depends on the model's size)",
    )
    batch_size: Annotated[int, COMMON] = Field(
        16, ge=1, le=1_000_000, description="examples per step, across all processes"
    )
    log_every: Annotated[int | None, MAY_CHANGE] = Field(
        None, ge=1, description="steps between log lines (default: a twentieth of the steps, at most 50)"
    )
    # Smaller than in pre-training, so that activations stay in the caches until the backward pass. In pre-training,
    # each micro-batch also adds a gradient for the whole vocabulary, so larger ones pay off.
    micro_batch_pieces: int = Field(2048, ge=1, description="maximum number of pieces per micro-batch")
    dropout: float | None = Field(None, ge=0, lt=1, description="dropout probability (default: the model's)")
    metric: str | None = Field(None, description="metric to select the best checkpoint (default: depends on the task)")
    patience: int | None = Field(
        None, ge=1, description="stop after N evaluations without improvement (default: 3, unless --epochs is set)"
    )
    eval_every: int | None = Field(None, ge=1, description="steps between evaluations (default: one epoch)")
    seeds: int = Field(1, ge=1, le=1000, description="train with this many seeds, starting at --seed; keep the best")
    grid: Literal["paper"] | None = Field(
        None, description="try batch sizes 16, 32 × learning rates 5e-5, 3e-5, 2e-5 × 2, 3, 4 epochs; keep the best"
    )

    @model_validator(mode="after")
    def _tags_of_both_files(self) -> Self:
        has_dev_file = self.dev is not None and heldout_share(self.dev) is None
        needs_tags = self.tags is not None and has_dev_file
        if needs_tags != (self.dev_tags is not None):
            rule = "`dev_tags` is required if `tags` is given and `dev` is a file, and not allowed otherwise"
            raise ValueError(rule)
        return self


class EvaluateSettings(RowSettings, WindowSettings):
    """Evaluate a fine-tuned model: metrics with 95% confidence intervals, and the most confident errors."""

    model: Annotated[str, Field(description="fine-tuned model folder"), POSITIONAL]
    file: Annotated[str, Field(description="file of labeled rows; - is standard input"), POSITIONAL]
    tags: Path | None = Field(None, description=TAGS)
    show_all: bool = Field(False, alias="all", description="show all classes and confused pairs")
    sort_by: Literal["rows", "f1", "name"] = Field(
        "rows", description="order of the classes: most rows, lowest F1, or name"
    )
    worst: int = Field(5, ge=0, description="number of errors to show, the most confident first")
    device: str = Field("auto", description="device: cpu, cuda or auto")
    threads: Threads | None = Field(None, description="threads to use (default: one per core)")
    as_json: bool = Field(False, alias="json", description="print one JSON object instead of tables")


class PredictSettings(RowSettings, WindowSettings):
    """Make predictions for rows or one text. `bertmill predict MODEL --help` also lists the task's options."""

    model: Annotated[str, Field(description="fine-tuned model folder"), POSITIONAL]
    file: Annotated[str | None, Field(description="file of input rows; - is standard input"), POSITIONAL] = None
    text: Annotated[str | None, COMMON] = Field(None, description="a single text to use instead of a file")
    pair: Annotated[str | None, COMMON] = Field(None, description="second text of a pair, used with --text")
    question: Annotated[str | None, COMMON] = Field(None, description="question to answer from --text")
    choice: Annotated[list[str], COMMON] = Field([], description="a choice for --text; repeat for each choice")
    out: Annotated[Path | None, COMMON] = Field(None, description="file to write instead of printing")
    output_format: Annotated[str | None, COMMON] = Field(
        None,
        description="jsonl, csv, table, or a task-specific format (default: csv if --out ends in .csv, else jsonl)",
    )
    safe_csv: bool = Field(False, description="put an apostrophe before csv cells that a spreadsheet would execute")
    device: str = Field("auto", description="device: cpu, cuda or auto")
    threads: Threads | None = Field(None, description="threads to use (default: one per core)")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (self.text is None):
            raise ValueError("after MODEL, give either a file (- is standard input) or `text`")
        if self.file is not None and any(each is not None for each in (self.pair, self.question, *self.choice)):
            raise ValueError("`pair`, `question` and `choice` need `text`, not a file")
        return self

    @property
    def chosen_format(self) -> str:
        """The output format: the given one, or that of the suffix of `out`."""
        is_csv = self.out is not None and self.out.suffix.lower() == ".csv"
        return self.output_format or ("csv" if is_csv else "jsonl")

    @model_validator(mode="after")
    def _safe_csv_is_csv(self) -> Self:
        if self.safe_csv and self.chosen_format != "csv":
            raise ValueError("`safe_csv` needs `output_format='csv'`")
        return self


class FillSettings(Settings):
    """Predict the piece at each [MASK] in a text."""

    model: Annotated[str, Field(description="model folder or model name"), POSITIONAL]
    texts: Annotated[list[str], Field(min_length=1, description="texts that contain [MASK]"), POSITIONAL]
    top_k: int = Field(5, ge=1, description="number of predictions for each [MASK]")
    device: str = Field("auto", description="device: cpu, cuda or auto")
    as_json: bool = Field(False, alias="json", description="print one JSON object per text instead of a table")


class DownloadSettings(Settings):
    """Download a model from the Hugging Face hub. Every command also downloads a model that it needs."""

    name: Annotated[str, Field(description="name on the Hub, such as bert-base-uncased"), POSITIONAL]
    revision: str | None = Field(None, description="branch, tag or commit (default: main)")
    out: Path | None = Field(
        None, description="folder to write; it must not exist yet (default: the Hugging Face cache)"
    )


class InspectSettings(Settings):
    """Describe a model, a vocabulary or a corpus."""

    folder: Folder
    show: int = Field(0, ge=0, le=1000, description="number of instances to show, with masks, segments and labels")
    objective: str = Field("mlm", description="objective of the instances")
    length: int = Field(128, ge=3, le=MAX_LENGTH, description="maximum number of pieces per instance")
    whole_words: bool = Field(False, description="select all pieces of a word or none")
    seed: int = Field(0, ge=0, description="random seed for instances and masks")
    as_json: bool = Field(False, alias="json", description="print one JSON object instead of text")


class CheckSettings(Settings):
    """Verify a model, a vocabulary or a corpus: hashes, shapes, values and counts. Exits with 4 if a check fails."""

    folder: Folder
    accept: bool = Field(False, description="record the hashes of changed files if all other checks pass")


class ReportSettings(Settings):
    """Write a report of one run, or compare several: curves, metrics, errors and attention in one HTML file."""

    runs: Annotated[list[Path], Field(min_length=1, description="run folders"), POSITIONAL]
    out: Path | None = Field(
        None,
        description="HTML file (default: report.html in the run folder; for several runs, a new one in the current "
        "folder)",
    )


class DemoSettings(Settings):
    """Run the whole pipeline on the documentation of installed packages. Resumes if it was interrupted."""

    out: Annotated[Path, COMMON] = Field(Path("bertmill-demo"), description="folder to work in")
    quick: Annotated[bool, COMMON] = Field(False, description="use a smaller encoder and fewer rows; takes up to 90 s")
    steps: Annotated[int | None, COMMON] = Field(None, ge=1, description="pre-train for N steps instead of a set time")
    threads: Threads | None = Field(None, description="threads and worker processes (default: one per core)")


COMMAND_SETTINGS: dict[str, type[Settings]] = {
    "demo": DemoSettings,
    "tokenize": TokenizeSettings,
    "vocab": VocabSettings,
    "corpus": CorpusSettings,
    "pretrain": PretrainSettings,
    "finetune": FinetuneSettings,
    "evaluate": EvaluateSettings,
    "predict": PredictSettings,
    "fill": FillSettings,
    "download": DownloadSettings,
    "inspect": InspectSettings,
    "check": CheckSettings,
    "report": ReportSettings,
}
