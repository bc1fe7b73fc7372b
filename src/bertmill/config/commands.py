"""The settings of every command: a field is a flag, a TOML key, a line of help and a line in docs/commands.md."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bertmill.config.fields import (
    COMMON,
    MAY_CHANGE,
    MAY_MOVE,
    NAME_OR_PATH,
    PATH,
    POSITIONAL,
    Folder,
    Heldout,
    MaskMix,
    OnNonFinite,
    Phases,
    Precision,
    Quotes,
    Seconds,
    Separator,
    SizeName,
    TextFiles,
    Threads,
)


class Settings(BaseModel):
    """What every command takes. The docstring of a subclass is the command's description in its help."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    quiet: Annotated[bool, MAY_CHANGE] = Field(False, description="print results only: no progress, no remarks")


class TokenizeSettings(Settings):
    """Show how a text is cut into pieces: each piece with its id, the characters it covers and its word."""

    files: TextFiles = []
    model: str = Field(description="a vocabulary file, a model folder or the name of an installed model (minilm)")
    text: list[str] = Field([], description="a text given here instead of in a file; may be repeated")
    pair: str | None = Field(None, description="a second text, encoded after --text in the same sequence")
    text_field: str = Field("text", description="the field of a .jsonl record that holds the text")
    cased: bool | None = Field(None, description="keep case and accents (default: what the model folder says)")
    special_tokens: bool = Field(True, description="put [CLS] and [SEP] around each text")
    as_json: bool = Field(False, alias="json", description="print one JSON object per text instead of a table")


class VocabSettings(Settings):
    """Learn a WordPiece vocabulary from text. The same text gives the same bytes, in any order of files."""

    files: TextFiles
    out: Path = Field(description="the folder to write; it must not exist yet")
    size: int = Field(30_522, ge=6, le=1_000_000, description="pieces, special tokens included")
    cased: bool = Field(False, description="keep case and accents")
    alphabet: int | None = Field(
        None, ge=1, description="at most so many characters (default: those that make up 99.995 % of the text)"
    )
    unused: int = Field(0, ge=0, le=100_000, description="[unused…] tokens to reserve")
    min_frequency: int = Field(2, ge=1, description="rarer words are not learnt from, rarer pairs not merged")
    workers: int | None = Field(None, ge=1, le=1024, description="processes (default: one per core)")
    text_field: str = Field("text", description="the field of a .jsonl record that holds the text")
    as_json: bool = Field(False, alias="json", description="print one JSON object instead of sentences")


class CorpusSettings(Settings):
    """Turn text into a corpus: sentences as pieces, on disk, ready for pre-training. Starts where it was broken off."""

    files: TextFiles
    vocab: str = Field(description="a vocabulary folder or file, a model folder or the name of an installed model")
    out: Path = Field(description="the corpus folder to write; it must not exist yet")
    workers: int | None = Field(None, ge=1, le=1024, description="processes (default: one per core)")
    document: Literal["blank-line", "file", "record"] | None = Field(
        None,
        description="what ends a document: a blank line, the end of its file, or of each line or record "
        "(default: record in .jsonl files, else blank-line)",
    )
    chinese_words: bool = Field(False, description="let jieba decide which ideographs are one word")
    text_field: str = Field("text", description="the field of a .jsonl record that holds the text")


DURATIONS = ("steps", "epochs", "budget")  # of pre-training; they exclude each other


class TrainingFields(Settings):
    """The fields that the settings and the resolved settings of a training share: none may be left open."""

    out: Annotated[Path, MAY_CHANGE] = Field(description="the run folder: settings, log, checkpoints and the model")
    resume: Annotated[bool, MAY_CHANGE, COMMON] = Field(
        False, description="continue the run in --out where it stopped; start it if there is none"
    )
    batch_size: Annotated[int, COMMON] = Field(
        32, ge=1, le=1_000_000, description="instances or examples per step, over all processes"
    )
    seed: Annotated[int, COMMON] = Field(0, description="decides initial weights, order, masks and dropout")
    micro_batch_pieces: int = Field(8192, ge=1, description="pieces that go through the model at once")
    weight_decay: float = Field(0.01, ge=0, description="decay of matrices; biases and LayerNorm have none")
    max_gradient_norm: float = Field(1.0, gt=0, description="longer gradients are scaled down to this norm")
    log_every: Annotated[int, MAY_CHANGE] = Field(50, ge=1, description="steps between lines of the log")
    save_every: Annotated[int, MAY_CHANGE] = Field(
        1000, ge=1, description="steps between checkpoints, besides those of the best"
    )
    keep: Annotated[int, MAY_CHANGE] = Field(2, ge=1, description="checkpoints to keep, besides the best one")
    on_nonfinite: Annotated[OnNonFinite, MAY_CHANGE] = Field(
        "stop", description="what to do if a loss or gradient is not finite"
    )
    precision: Precision = Field("fp32", description="number format; auto tries both and takes the faster")
    gradient_checkpointing: Annotated[bool, MAY_CHANGE] = Field(
        False, description="compute activations twice instead of keeping them"
    )
    compile: Annotated[bool, MAY_CHANGE] = Field(
        False, description="fuse the parts of layers around attention; needs a C++ compiler"
    )
    device: Annotated[str, MAY_CHANGE] = Field("auto", description="cpu, cuda, or auto")


class TrainingSettings(TrainingFields):
    """What pre-training and fine-tuning share. Of each group in `recorded`, config.toml must have one setting."""

    recorded: ClassVar[tuple[tuple[str, ...], ...]] = ()
    threads: Annotated[Threads | None, MAY_CHANGE] = Field(None, description="threads (default: one per core)")


class PretrainFields(TrainingFields):
    """Fields shared by the settings and the resolved settings of a pre-training."""

    corpus: Annotated[Path, PATH, MAY_MOVE] = Field(description="a folder made by `bertmill corpus`")
    objective: Annotated[str, COMMON] = Field("mlm", description="what to learn")
    length: Annotated[Phases, COMMON] = Field(
        "128", description="pieces per instance, or lengths with shares: 128:0.9,512:0.1"
    )
    initial_weights: Literal["corpus", "random"] = Field(
        "corpus",
        description="corpus: compute from corpus statistics; random: draw at random; not used with --init",
    )
    short_seq_prob: float = Field(0.1, ge=0, le=1, description="share of instances that are shorter on purpose")
    mask_mix: MaskMix = Field(
        "80/10/10", description="percent of selected pieces that become [MASK] / random / unchanged"
    )
    whole_words: bool = Field(False, description="select all pieces of a word or none")
    fixed_masks: bool = Field(False, description="the same masks in every epoch")
    eval_every: Annotated[int, MAY_CHANGE] = Field(1000, ge=1, description="steps between held-out evaluations")
    workers: Annotated[int, MAY_CHANGE] = Field(
        1, ge=0, le=1024, description="threads that prepare batches ahead (0: none)"
    )


class PretrainSettings(TrainingSettings, PretrainFields):
    """Pre-train a BERT on a corpus, or continue pre-training one."""

    recorded = (("size", "init"), ("learning_rate",), ("dropout",), ("mask_rate",), DURATIONS)
    size: Annotated[SizeName | None, COMMON] = Field(None, description="the size of the model (default: mini)")
    init: Annotated[str | None, NAME_OR_PATH, MAY_MOVE, COMMON] = Field(
        None, description="continue pre-training this model instead of training a new one"
    )
    steps: Annotated[int | None, COMMON] = Field(None, ge=1, le=10**12, description="how long to train: in steps")
    epochs: Annotated[float | None, COMMON] = Field(
        None, gt=0, le=1e6, description="how long to train: times through the corpus (default: 1)"
    )
    budget: Annotated[Seconds | None, COMMON] = Field(
        None, description="how long to train: a time such as 30m or 2h; a number means seconds"
    )
    learning_rate: Annotated[float | None, COMMON] = Field(
        None, gt=0, description="the peak learning rate (default: by model size and initial weights)"
    )
    dropout: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="share of activations and attention weights dropped (default: 0; 0.1 for four epochs or more)",
    )
    mask_rate: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of pieces to select for prediction (default: 0.3; 0.15 for four epochs or more)",
    )
    heldout: Annotated[Heldout | None, PATH, COMMON] = Field(
        None,
        description="text to evaluate on: a file, folder or glob, or a share of the corpus's documents such as 0.01, "
        "which are then not trained on",
    )

    @model_validator(mode="after")
    def _exclusive(self) -> Self:
        durations = [name for name in DURATIONS if getattr(self, name) is not None]
        if len(durations) > 1:
            raise ValueError(f"--{' and --'.join(durations)} exclude each other")
        return self


class RowSettings(Settings):
    """How labelled rows are read."""

    columns: Annotated[str | None, COMMON] = Field(
        None, description="the columns to use: text=sentence,label=stars; numbers if the file has no header"
    )
    preset: Annotated[str | None, COMMON] = Field(
        None, description="the columns of a known data set: sst2, cola, mrpc, rte, stsb, …"
    )
    format: str | None = Field(
        None, description="the format of the file: one that the task reads (default: by the suffix)"
    )
    separator: Separator | None = Field(
        None, description="what separates columns, one character or tab (default: a comma in .csv, else a tab)"
    )
    quotes: Quotes | None = Field(
        None, description="whether quotes wrap fields or are literal (default: standard in .csv, else literal)"
    )
    on_bad_row: Literal["stop", "skip"] = Field(
        "stop", description="what to do with a row that cannot be used; more than 5 % bad rows always stop"
    )


class WindowSettings(Settings):
    """How inputs that are longer than the model are read."""

    max_length: Annotated[int | None, COMMON] = Field(
        None, ge=5, description="pieces in a window (default: by the task and the model)"
    )
    stride: int | None = Field(None, ge=1, description="pieces advanced from window to window (default: by the task)")
    truncate: bool | None = Field(None, description="read the first window only instead of sliding")


class FinetuneSettings(TrainingSettings, RowSettings, WindowSettings):
    """Fine-tune a model on labelled rows. `bertmill finetune TASK --help` adds the options of a task."""

    task: Annotated[str, POSITIONAL] = Field(description="what to learn")
    model: Annotated[str, NAME_OR_PATH, MAY_MOVE] = Field(
        description="the pre-trained model: a folder or the name of an installed model"
    )
    train: Annotated[Path, PATH, MAY_MOVE] = Field(description="a file of labelled rows")
    dev: Annotated[Heldout, PATH, MAY_MOVE, COMMON] = Field(
        "0.1", description="rows to evaluate on: a file, or a share of the training rows"
    )
    epochs: Annotated[float, COMMON] = Field(3.0, gt=0, le=1e6, description="times through the training rows")
    learning_rate: Annotated[float, COMMON] = Field(5e-5, gt=0, description="the peak, after a tenth of the steps")
    # Smaller than in pre-training, where each micro-batch adds up a gradient for the whole vocabulary: activations stay
    # in the caches until the backward pass.
    micro_batch_pieces: int = Field(2048, ge=1, description="pieces that go through the model at once")
    dropout: float | None = Field(None, ge=0, lt=1, description="share of activations dropped (default: the model's)")
    freeze: bool = Field(False, description="train the head only; the encoder stays as it is")
    metric: str | None = Field(None, description="selects the best checkpoint (default: by the task)")
    patience: int | None = Field(None, ge=1, description="stop after N evaluations without improvement")
    eval_every: int | None = Field(None, ge=1, description="steps between evaluations (default: an epoch)")
    seeds: int = Field(1, ge=1, description="train with this many seeds, from --seed on, and keep the best")
    grid: Literal["paper"] | None = Field(
        None, description="paper: train with batches of 16, 32, rates of 5e-5, 3e-5, 2e-5 and 2, 3, 4 epochs each"
    )


class EvaluateSettings(RowSettings, WindowSettings):
    """Measure a fine-tuned model on labelled rows: metrics with 95 % intervals, and where it errs."""

    model: Annotated[str, Field(description="a fine-tuned model folder"), POSITIONAL]
    data: Path = Field(description="the labelled rows, in any format that finetune reads")
    worst: int = Field(5, ge=0, description="errors to show, the surest first")
    device: str = Field("auto", description="cpu, cuda, or auto")
    threads: Threads | None = Field(None, description="threads to compute with (default: one per core)")
    as_json: bool = Field(False, alias="json", description="print one JSON object instead of tables")


class PredictSettings(RowSettings, WindowSettings):
    """Predict answers for rows or one text. `bertmill predict MODEL --help` adds the options of the model's task."""

    model: Annotated[str, Field(description="a fine-tuned model folder"), POSITIONAL]
    file: Annotated[str | None, Field(description="rows to answer for; - is standard input"), POSITIONAL] = None
    text: Annotated[str | None, COMMON] = Field(None, description="a text given here instead of in a file")
    pair: Annotated[str | None, COMMON] = Field(None, description="the second text of --text")
    question: Annotated[str | None, COMMON] = Field(None, description="a question that --text answers")
    choice: Annotated[list[str], COMMON] = Field([], description="a choice for --text; give it at least twice")
    out: Annotated[Path | None, COMMON] = Field(None, description="a file to write to instead of printing")
    output_format: Annotated[str, COMMON] = Field(
        "jsonl", description="how answers are written: jsonl, csv, table, or a format of the task"
    )
    device: str = Field("auto", description="cpu, cuda, or auto")
    threads: Threads | None = Field(None, description="threads to compute with (default: one per core)")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [self.text, self.pair, self.question, *self.choice]
        if (self.file is None) == (self.text is None):
            raise ValueError("give either a file (- is standard input) or --text")
        if self.file is not None and any(value is not None for value in given):
            raise ValueError("--pair, --question and --choice go with --text, not with a file")
        return self


class FillSettings(Settings):
    """Predict the piece at each [MASK] of a text."""

    model: Annotated[str, Field(description="a model folder or the name of an installed model"), POSITIONAL]
    texts: Annotated[list[str], Field(min_length=1, description="texts with [MASK] in them"), POSITIONAL]
    top_k: int = Field(5, ge=1, description="guesses for each [MASK]")
    device: str = Field("auto", description="cpu, cuda, or auto")
    as_json: bool = Field(False, alias="json", description="print one JSON object per text instead of a table")


class InspectSettings(Settings):
    """Say in words what a folder holds: a model, a vocabulary or a corpus."""

    folder: Folder
    show: int = Field(0, ge=0, description="so many finished instances of a corpus, with masks, segments and labels")
    objective: str = Field("mlm", description="what the instances are for")
    length: int = Field(128, ge=3, description="pieces of an instance, at most")
    whole_words: bool = Field(False, description="mask all pieces of a word or none")
    seed: int = Field(0, ge=0, description="what chance depends on")
    as_json: bool = Field(False, alias="json", description="print one JSON object instead of sentences")


class CheckSettings(Settings):
    """Check everything about a model, a vocabulary or a corpus that can be wrong. Exit code 4 if anything is."""

    folder: Folder


class ReportSettings(Settings):
    """Write the report of a run, or of several to compare: curves, metrics, errors and attention in one HTML file."""

    runs: Annotated[list[Path], Field(min_length=1, description="run folders"), POSITIONAL]
    out: Path | None = Field(
        None, description="the file to write (default: report.html in the run, or in the current folder for several)"
    )


class DemoSettings(Settings):
    """Show the tokenizer at work, on a text and a real model that come with the installation."""


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
    "inspect": InspectSettings,
    "check": CheckSettings,
    "report": ReportSettings,
}
