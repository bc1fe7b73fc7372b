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
    Folder,
    Heldout,
    MaskMix,
    Phases,
    Quotes,
    Seconds,
    Separator,
    SizeName,
    TextFiles,
    Threads,
)
from bertmill.config.settings import Settings
from bertmill.config.training_settings import TrainingFields, TrainingSettings


class TokenizeSettings(Settings):
    """Show how text is split into pieces: each piece with its id, the characters it covers and its word."""

    files: TextFiles = Field([])
    model: str = Field(description="vocabulary file, model folder or name of an installed model such as minilm")
    text: list[str] = Field([], description="text to tokenize instead of files; may be repeated")
    pair: str | None = Field(None, description="second text, encoded after --text in the same sequence")
    text_field: str = Field("text", description="field of a .jsonl record that contains the text")
    cased: bool | None = Field(None, description="keep case and accents (default: as in the model folder)")
    special_tokens: bool = Field(True, description="add [CLS] and [SEP] to each text")
    as_json: bool = Field(False, alias="json", description="print one JSON object per text instead of a table")


class VocabSettings(Settings):
    """Learn a WordPiece vocabulary from text. The output is byte-identical for any file order."""

    files: TextFiles
    out: Path = Field(description="folder to write; it must not exist yet")
    size: int = Field(30_522, ge=6, le=1_000_000, description="number of pieces, including special tokens")
    cased: bool = Field(False, description="keep case and accents")
    alphabet: int | None = Field(
        None, ge=1, description="maximum number of distinct characters (default: enough to cover 99.995% of the text)"
    )
    unused: int = Field(0, ge=0, le=100_000, description="number of [unused…] tokens to reserve")
    min_frequency: int = Field(2, ge=1, description="minimum frequency of words to learn from and of pairs to merge")
    workers: int | None = Field(None, ge=1, le=1024, description="processes to use (default: one per core)")
    text_field: str = Field("text", description="field of a .jsonl record that contains the text")
    as_json: bool = Field(False, alias="json", description="print one JSON object instead of text")


class CorpusSettings(Settings):
    """Turn text into a corpus: sentences are split into pieces and stored on disk. Resumes an interrupted build."""

    files: TextFiles
    vocab: str = Field(description="vocabulary folder or file, model folder or name of an installed model")
    out: Path = Field(description="corpus folder to write; it must not exist yet")
    workers: int | None = Field(None, ge=1, le=1024, description="processes to use (default: one per core)")
    document: Literal["blank-line", "file", "record"] | None = Field(
        None,
        description="where a document ends: at a blank line, at the end of the file, or after each line or record "
        "(default: record in .jsonl files, else blank-line)",
    )
    chinese_words: bool = Field(False, description="group Chinese characters into words with jieba")
    text_field: str = Field("text", description="field of a .jsonl record that contains the text")


DURATIONS = ("steps", "epochs", "budget")  # of pre-training; mutually exclusive


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
    eval_every: Annotated[int, MAY_CHANGE] = Field(1000, ge=1, description="steps between held-out evaluations")
    workers: Annotated[int, MAY_CHANGE] = Field(
        1, ge=0, le=1024, description="threads that prefetch batches (0 disables prefetching)"
    )


class PretrainSettings(TrainingSettings, PretrainFields):
    """Pre-train a BERT model on a corpus, or continue pre-training a model."""

    recorded = (("size", "init"), ("learning_rate",), ("dropout",), ("mask_rate",), DURATIONS)
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
    budget: Annotated[Seconds | None, COMMON] = Field(
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
        durations = [name for name in DURATIONS if getattr(self, name) is not None]
        if len(durations) > 1:
            raise ValueError(f"--{' and --'.join(durations)} are mutually exclusive")
        return self


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
        None, description="column separator, one character or tab (default: a comma in .csv, else a tab)"
    )
    quotes: Quotes | None = Field(
        None,
        description="standard: quotes enclose fields; literal: quotes are ordinary characters "
        "(default: standard in .csv, else literal)",
    )
    on_bad_row: Literal["stop", "skip"] = Field(
        "stop", description="what to do with an unusable row; always stops if more than 5% of rows are bad"
    )


class WindowSettings(Settings):
    """Settings for inputs that are longer than the model reads."""

    max_length: Annotated[int | None, COMMON] = Field(
        None, ge=5, description="pieces per window (default: depends on the task and the model)"
    )
    stride: int | None = Field(None, ge=1, description="pieces between window starts (default: depends on the task)")
    truncate: bool | None = Field(None, description="read only the first window of a long input")


class FinetuneSettings(TrainingSettings, RowSettings, WindowSettings):
    """Fine-tune a model on labeled rows. `bertmill finetune TASK --help` also lists the task's options."""

    task: Annotated[str, POSITIONAL] = Field(description="task to learn")
    model: Annotated[str, NAME_OR_PATH, MAY_MOVE] = Field(
        description="pre-trained model: a folder or the name of an installed model"
    )
    train: Annotated[Path, PATH, MAY_MOVE] = Field(description="file of labeled rows to train on")
    dev: Annotated[Heldout, PATH, MAY_MOVE, COMMON] = Field(
        "0.1", description="dev set: a file, or a fraction of the training rows"
    )
    epochs: Annotated[float, COMMON] = Field(3.0, gt=0, le=1e6, description="train for this many epochs")
    learning_rate: Annotated[float, COMMON] = Field(
        5e-5, gt=0, description="peak learning rate, reached after a tenth of the steps"
    )
    # Smaller than in pre-training, so that activations stay in the caches until the backward pass. In pre-training,
    # each micro-batch also adds a gradient for the whole vocabulary, so larger ones pay off.
    micro_batch_pieces: int = Field(2048, ge=1, description="maximum number of pieces per micro-batch")
    dropout: float | None = Field(None, ge=0, lt=1, description="dropout probability (default: the model's)")
    freeze: bool = Field(False, description="train only the head, not the encoder")
    metric: str | None = Field(None, description="metric to select the best checkpoint (default: depends on the task)")
    patience: int | None = Field(None, ge=1, description="stop after N evaluations without improvement")
    eval_every: int | None = Field(None, ge=1, description="steps between evaluations (default: one epoch)")
    seeds: int = Field(1, ge=1, le=1000, description="train with this many seeds, starting at --seed; keep the best")
    grid: Literal["paper"] | None = Field(
        None, description="try batch sizes 16, 32 × learning rates 5e-5, 3e-5, 2e-5 × 2, 3, 4 epochs; keep the best"
    )


class EvaluateSettings(RowSettings, WindowSettings):
    """Evaluate a fine-tuned model: metrics with 95% confidence intervals, and the most confident errors."""

    model: Annotated[str, Field(description="fine-tuned model folder"), POSITIONAL]
    data: Path = Field(description="file of labeled rows, in any format that finetune reads")
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
    output_format: Annotated[str, COMMON] = Field("jsonl", description="jsonl, csv, table, or a task-specific format")
    safe_csv: bool = Field(False, description="prefix csv cells that a spreadsheet would execute with an apostrophe")
    device: str = Field("auto", description="device: cpu, cuda or auto")
    threads: Threads | None = Field(None, description="threads to use (default: one per core)")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [self.text, self.pair, self.question, *self.choice]
        if (self.file is None) == (self.text is None):
            raise ValueError("after MODEL, give either a file (- is standard input) or --text")
        if self.file is not None and any(value is not None for value in given):
            raise ValueError("--pair, --question and --choice need --text, not a file")
        return self


class FillSettings(Settings):
    """Predict the piece at each [MASK] in a text."""

    model: Annotated[str, Field(description="model folder or name of an installed model"), POSITIONAL]
    texts: Annotated[list[str], Field(min_length=1, description="texts that contain [MASK]"), POSITIONAL]
    top_k: int = Field(5, ge=1, description="number of predictions for each [MASK]")
    device: str = Field("auto", description="device: cpu, cuda or auto")
    as_json: bool = Field(False, alias="json", description="print one JSON object per text instead of a table")


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
    "inspect": InspectSettings,
    "check": CheckSettings,
    "report": ReportSettings,
}
