"""The settings of every command: a field is a flag, a TOML key, a line of help and a line in docs/commands.md."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bertmill.config.fields import (
    POSITIONAL,
    Folder,
    Heldout,
    MaskMix,
    OnNonFinite,
    Phases,
    Precision,
    Quotes,
    Seconds,
    SizeName,
    TaskName,
    TextFiles,
    Threads,
)
from bertmill.errors import UsageError


class Settings(BaseModel):
    """What every command takes. The docstring of a subclass is the command's description in its help."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    quiet: bool = Field(False, description="print results only: no progress, no remarks")


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

    files: TextFiles = []
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

    files: TextFiles = []
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


class TrainingSettings(Settings):
    """What pre-training and fine-tuning have in common."""

    # What may differ from the stopped run when it is resumed: nothing that decides what is learnt.
    MAY_CHANGE: ClassVar[frozenset[str]] = frozenset(
        (
            *("resume", "out", "quiet", "log_every", "save_every", "keep"),
            *("device", "threads", "on_nonfinite", "gradient_checkpointing", "compile"),
        )
    )

    # What may lie elsewhere by then: the run knows its hashes. Of a run that is finished nothing is read again.
    MAY_MOVE: ClassVar[frozenset[str]] = frozenset()

    # A run must find these again from another directory: files and folders, of which some may be a share instead, and
    # what may be a folder or the name of an installed model.
    PATHS: ClassVar[tuple[str, ...]] = ()
    MAY_BE_PATHS: ClassVar[tuple[str, ...]] = ()

    out: Path = Field(description="the run folder: settings, log, checkpoints and in the end the model")
    resume: bool = Field(False, description="go on with the run in --out where it was stopped; begin if there is none")
    batch_size: int = Field(32, ge=1, le=1_000_000, description="instances or examples per step, over all processes")
    micro_batch_pieces: int = Field(8192, ge=1, description="pieces that go through the model at once")
    weight_decay: float = Field(0.01, ge=0, description="decay of matrices; biases and LayerNorm have none")
    max_gradient_norm: float = Field(1.0, gt=0, description="longer gradients are scaled down to this norm")
    log_every: int = Field(50, ge=1, description="steps between lines of the log")
    save_every: int = Field(1000, ge=1, description="steps between checkpoints, besides those of the best")
    keep: int = Field(2, ge=1, description="checkpoints to keep, besides the best one")
    on_nonfinite: OnNonFinite = Field("stop", description="what to do when a loss or gradient is not a number")
    precision: Precision = Field("fp32", description="numbers to compute with; auto tries both and takes the faster")
    gradient_checkpointing: bool = Field(False, description="compute activations twice instead of keeping them")
    compile: bool = Field(False, description="fuse the parts of layers around attention; it needs a C++ compiler")
    device: str = Field("auto", description="cpu, cuda, or auto")
    threads: Threads | None = Field(None, description="threads to compute with (default: one per core)")
    seed: int = Field(0, description="decides first weights, order, masks and dropout")

    def require_all(self) -> None:
        """UsageError unless everything is there that a run needs to begin; one that is resumed knows it."""

    def missing(self) -> list[str]:
        """What a run that has begun must know, and does not."""
        return []


class PretrainSettings(TrainingSettings):
    """Train a BERT from a corpus, or go on training one. A run that was stopped goes on with --resume."""

    MAY_CHANGE: ClassVar[frozenset[str]] = TrainingSettings.MAY_CHANGE | {"eval_every", "workers"}
    MAY_MOVE: ClassVar[frozenset[str]] = frozenset(("corpus", "init"))
    PATHS: ClassVar[tuple[str, ...]] = ("corpus", "heldout")
    MAY_BE_PATHS: ClassVar[tuple[str, ...]] = ("init",)

    corpus: Path | None = Field(None, description="a folder made by `bertmill corpus` (a resumed run knows its own)")
    size: SizeName | None = Field(None, description="the size of the model (default: mini)")
    init: str | None = Field(None, description="go on training this model instead of beginning with a random one")
    objective: str = Field("mlm+nsp", description="mlm+nsp, mlm+sop, mlm (masked pieces alone) or clm (left to right)")
    steps: int | None = Field(None, ge=1, le=10**12, description="how long to train: a number of steps")
    epochs: float | None = Field(
        None, gt=0, le=1e6, description="how long to train: times through the corpus (1 if nothing else is said)"
    )
    budget: Seconds | None = Field(None, description="how long to train: a time such as 30m or 2h; a number is seconds")
    length: Phases = Field("128", description="pieces per instance, or lengths with shares: 128:0.9,512:0.1")
    learning_rate: float | None = Field(None, gt=0, description="the highest rate (default: by the model's size)")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of activations and attention weights dropped")
    short_seq_prob: float = Field(0.1, ge=0, le=1, description="share of instances that are shorter on purpose")
    mask_rate: float = Field(0.15, gt=0, le=1, description="share of pieces to be guessed")
    mask_mix: MaskMix = Field("80/10/10", description="of these, percent that are masked / random / left as they are")
    whole_words: bool = Field(False, description="mask all pieces of a word or none")
    fixed_masks: bool = Field(False, description="the same masks in every epoch")
    heldout: Heldout | None = Field(
        None,
        description="text to measure the loss on: a file, folder or glob, or a share of the corpus's documents such "
        "as 0.01, which are then not trained on",
    )
    eval_every: int = Field(1000, ge=1, description="steps between measurements on held-out text")
    workers: int = Field(1, ge=0, le=1024, description="threads that prepare batches ahead (0: none)")

    @model_validator(mode="after")
    def _one_duration(self) -> Self:
        given = [name for name in ("steps", "epochs", "budget") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"--{' and --'.join(given)} contradict each other")
        return self

    def require_all(self) -> None:
        if self.corpus is None:
            raise UsageError("--corpus is required: a folder made by `bertmill corpus`")
        if self.init is not None and self.size is not None:
            raise UsageError("--init brings a size of its own", remedy="leave --size away")

    def missing(self) -> list[str]:
        needed = {
            "corpus": self.corpus,
            "learning_rate": self.learning_rate,
            "size or init": self.size or self.init,
            "steps, epochs or budget": self.steps or self.epochs or self.budget,
        }
        return [name for name, value in needed.items() if value is None]


class RowSettings(Settings):
    """How labelled rows are read, and long texts with them."""

    columns: str | None = Field(
        None, description="which column is what: text=sentence,label=stars; numbers where the file has no header"
    )
    preset: str | None = Field(None, description="the columns of a known data set: sst2, cola, mrpc, rte, stsb, …")
    quotes: Quotes = Field("auto", description="whether quotes in .tsv and .csv files are characters or wrap fields")
    on_bad_row: Literal["stop", "skip"] = Field(
        "stop", description="what to do with a row that cannot be read; more than 5 % stop all the same"
    )
    max_length: int | None = Field(
        None, ge=5, description="pieces in a window (default: what the model can read; 384 for answers)"
    )
    stride: int | None = Field(
        None,
        ge=1,
        description="pieces advanced from window to window of a long text (default: 3/4 of a window; 128 for answers)",
    )
    truncate: bool | None = Field(
        None, description="cut long texts after the first window instead of sliding (not for tags and answers)"
    )


class FinetuneSettings(TrainingSettings, RowSettings):
    """Train a model on labelled rows: a class, a number, one of several choices, tags, or answers out of passages."""

    MAY_MOVE: ClassVar[frozenset[str]] = frozenset(("train", "dev", "model"))
    PATHS: ClassVar[tuple[str, ...]] = ("train", "dev")
    MAY_BE_PATHS: ClassVar[tuple[str, ...]] = ("model",)

    task: Annotated[TaskName | None, Field(description="classify, regress, choose, tag or answer"), POSITIONAL] = None
    model: str | None = Field(
        None,
        description="the pre-trained model: a folder or the name of an installed model (a resumed run knows its own)",
    )
    train: Path | None = Field(
        None, description="the labelled rows: .tsv, .csv, .jsonl, .json, .parquet, or columns of words and tags"
    )
    dev: Heldout = Field("0.1", description="rows to measure on: a file, or a share of the training rows")
    epochs: float = Field(3.0, gt=0, le=1e6, description="times through the training rows")
    # A quarter of pre-training's, which must add up the gradient of the whole vocabulary after each micro-batch: what
    # these leave for the way back is more often found in the caches.
    micro_batch_pieces: int = Field(2048, ge=1, description="pieces that go through the model at once")
    learning_rate: float = Field(5e-5, gt=0, description="the highest rate, after a tenth of the steps")
    dropout: float | None = Field(None, ge=0, lt=1, description="share of activations dropped (default: the model's)")
    multi_label: bool = Field(False, description="a text may have several labels, a|b (or with , or ;), or none")
    class_weights: str | None = Field(None, description="how much classes count: balanced, or ham=1,spam=5")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="share of each target that is spread over all classes")
    freeze: bool = Field(False, description="train the head alone; the encoder stays as it is")
    metric: str | None = Field(
        None, description="what chooses the best checkpoint (default: the task's first; matthews with --preset cola)"
    )
    patience: int | None = Field(None, ge=1, description="evaluations without a better one, after which to stop")
    eval_every: int | None = Field(None, ge=1, description="steps between evaluations (default: an epoch)")
    seeds: int = Field(1, ge=1, description="trainings to make, with --seed and the numbers after it; the best stays")
    grid: Literal["paper"] | None = Field(
        None, description="paper: train with batches of 16, 32, rates of 5e-5, 3e-5, 2e-5 and 2, 3, 4 epochs each"
    )

    @model_validator(mode="after")
    def _fitting_the_task(self) -> Self:
        has_class_flags = self.class_weights is not None or self.label_smoothing > 0
        if self.task not in ("classify", None) and (has_class_flags or self.multi_label):
            raise ValueError("--class-weights, --label-smoothing and --multi-label are for classify alone")
        if self.multi_label and has_class_flags:
            raise ValueError("--class-weights and --label-smoothing are for one label per text")
        return self

    def require_all(self) -> None:
        missing = ", ".join("TASK" if name == "task" else f"--{name}" for name in self.missing())
        if missing:
            remedy = f"{self.out} holds none to go on with" if self.resume else "or name a run to --resume"
            raise UsageError(f"{missing} must be given for a new run", remedy=remedy)

    def missing(self) -> list[str]:
        return [name for name in ("task", "model", "train") if getattr(self, name) is None]


class EvaluateSettings(RowSettings):
    """Measure a fine-tuned model on labelled rows: metrics with 95 % intervals, and where it errs."""

    model: Annotated[str, Field(description="a fine-tuned model folder"), POSITIONAL]
    data: Path = Field(description="the labelled rows, in any format that finetune reads")
    worst: int = Field(5, ge=0, description="errors to show, the surest first")
    device: str = Field("auto", description="cpu, cuda, or auto")
    threads: Threads | None = Field(None, description="threads to compute with (default: one per core)")
    as_json: bool = Field(False, alias="json", description="print one JSON object instead of tables")


class PredictSettings(RowSettings):
    """Let a fine-tuned model answer for every row of a file, or for a text given here."""

    model: Annotated[str, Field(description="a fine-tuned model folder"), POSITIONAL]
    file: Annotated[str | None, Field(description="rows to answer for; - is standard input"), POSITIONAL] = None
    text: str | None = Field(None, description="a text given here instead of in a file")
    pair: str | None = Field(None, description="the second text of --text")
    question: str | None = Field(None, description="what to answer out of --text")
    choice: list[str] = Field([], description="a choice for --text; given at least twice")
    out: Path | None = Field(None, description="a file to write to instead of printing")
    format: Literal["jsonl", "csv", "table", "columns"] = Field(
        "jsonl", description="how answers are written; columns: a line for every word, with its tag"
    )
    top_k: int = Field(1, ge=1, le=20, description="answers for each question; several stand in a list")
    device: str = Field("auto", description="cpu, cuda, or auto")
    threads: Threads | None = Field(None, description="threads to compute with (default: one per core)")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (self.text is None):
            raise ValueError("give either a file (- is standard input) or --text")
        if self.file is not None and (self.pair is not None or self.question is not None or self.choice):
            raise ValueError("--pair, --question and --choice go with --text, not with a file")
        if self.question is not None and (self.pair is not None or self.choice):
            raise ValueError("--question goes without --pair and --choice")
        if len(self.choice) == 1:
            raise ValueError("--choice must be given at least twice")
        given = (self.text, self.pair, self.question, *self.choice)
        if not all(text is None or text.strip() for text in given):
            raise ValueError("--text, --pair, --question and --choice must not be empty")
        return self


class FillSettings(Settings):
    """Guess what stands in the place of each [MASK] of a text."""

    model: Annotated[str, Field(description="a model folder or the name of an installed model"), POSITIONAL]
    texts: Annotated[list[str], Field(min_length=1, description="texts with [MASK] in them"), POSITIONAL]
    top_k: int = Field(5, ge=1, description="guesses for each [MASK]")
    device: str = Field("auto", description="cpu, cuda, or auto")
    as_json: bool = Field(False, alias="json", description="print one JSON object per text instead of a table")


class InspectSettings(Settings):
    """Say in words what a folder holds: a model, a vocabulary or a corpus."""

    folder: Folder
    show: int = Field(0, ge=0, description="so many finished instances of a corpus, with masks, segments and labels")
    objective: str = Field("mlm+nsp", description="what the instances are for: mlm+nsp, mlm+sop, mlm or clm")
    length: int = Field(128, ge=3, description="pieces of an instance, at most")
    whole_words: bool = Field(False, description="mask all pieces of a word or none")
    seed: int = Field(0, ge=0, description="what chance depends on")
    as_json: bool = Field(False, alias="json", description="print one JSON object instead of sentences")


class CheckSettings(Settings):
    """Check everything about a model, a vocabulary or a corpus that can be wrong. Exit code 4 if anything is."""

    folder: Folder


class BenchSettings(Settings):
    """Measure bertmill against the tools people use today, on this machine, and print the ratios."""

    names: Annotated[list[str], Field(description="benchmarks to run (default: all)"), POSITIONAL] = []
    data: Path | None = Field(
        None, description="folder of the benchmark texts (default: BERTMILL_DATA or ../shared/data)"
    )
    rounds: int = Field(3, ge=1, description="rounds of alternating measurements; the best of each side counts")
    as_json: bool = Field(False, alias="json", description="print one JSON object per measurement instead of a table")


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
    "bench": BenchSettings,
}
