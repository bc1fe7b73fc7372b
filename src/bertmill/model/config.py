"""Settings of a BERT model: Hugging Face's `config.json`, validated before anything is built from it.

- Every field has limits, so a hostile file is rejected before any memory is allocated. One error lists all problems.
- Keys that do not affect BERT are attributes as well, and written back. Values that would change the computation in
  an unsupported way are rejected, and so are misspelled fields.
- `causal` is Hugging Face's `is_decoder`: each piece attends only to itself and to earlier pieces.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bertmill.checkpoint.arguments import LOADING, check_and_drop, hub_arguments
from bertmill.checkpoint.huggingface import CONFIG_FILE, read_model_settings
from bertmill.checkpoint.labels import MAX_LABELS, default_labels, resolve_labels
from bertmill.checkpoint.names import find_model
from bertmill.config.reading import unknown_name
from bertmill.errors import IntegrityError, UsageError
from bertmill.storage import write_file

MODEL_TYPE = "bert"

# Layers, hidden size, heads. The intermediate size is four times the hidden size.
SIZES: dict[str, tuple[int, int, int]] = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}

# Keys of config.json that select variants of BERT, with the only values that are supported, the default first.
_ONLY_VALUES: dict[str, tuple[Any, ...]] = {
    "model_type": (MODEL_TYPE,),
    "position_embedding_type": ("absolute",),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
    "is_encoder_decoder": (False,),
    "pruned_heads": ({}, None),
}
# Options of other models that have no effect on BERT, with Hugging Face's defaults.
_INERT: dict[str, Any] = {
    "use_cache": True,
    "chunk_size_feed_forward": 0,
    "torchscript": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "finetuning_task": None,
}
# Not written back: facts about the program and dtype that saved the file, and references to code.
_NOT_KEPT = ("auto_map", "torch_dtype", "dtype", "transformers_version", "_name_or_path")
_DEFAULTS = {**_INERT, **{name: values[0] for name, values in _ONLY_VALUES.items()}}

_MAX_SIZE = 1 << 16
_MISSPELLED = 0.9  # similarity to the name of a field


class BertConfig(BaseModel):
    """Settings of a BERT model. The defaults are those of size `base`."""

    model_config = ConfigDict(extra="allow", strict=True, validate_assignment=True)

    model_type: ClassVar[str] = MODEL_TYPE

    vocab_size: int = Field(30522, ge=1, le=1 << 24)
    hidden_size: int = Field(768, ge=1, le=_MAX_SIZE)
    num_hidden_layers: int = Field(12, ge=0, le=1024)
    num_attention_heads: int = Field(12, ge=1, le=_MAX_SIZE)
    intermediate_size: int = Field(3072, ge=1, le=4 * _MAX_SIZE)
    hidden_act: Literal["gelu", "gelu_new", "relu"] = "gelu"
    hidden_dropout_prob: float = Field(0.1, ge=0, lt=1)
    attention_probs_dropout_prob: float = Field(0.1, ge=0, lt=1)
    classifier_dropout: float | None = Field(None, ge=0, lt=1)
    max_position_embeddings: int = Field(512, ge=1, le=1 << 20)
    type_vocab_size: int = Field(2, ge=1, le=_MAX_SIZE)
    initializer_range: float = Field(0.02, ge=0, le=10, allow_inf_nan=False)
    layer_norm_eps: float = Field(1e-12, ge=0, le=1, allow_inf_nan=False)
    pad_token_id: int | None = Field(0, ge=0)
    causal: bool = False
    problem_type: Literal["regression", "single_label_classification", "multi_label_classification"] | None = None
    id2label: dict[int, str] = Field(default_factory=lambda: default_labels(2), min_length=1, max_length=MAX_LABELS)
    architectures: list[str] | None = None
    output_hidden_states: bool = False
    output_attentions: bool = False
    return_dict: bool = True

    def __init__(self, **settings: Any) -> None:
        if "is_decoder" in settings:
            settings["causal"] = settings.pop("is_decoder")
        try:
            super().__init__(**resolve_labels(settings)[0])
        except ValidationError as error:
            raise _in_our_words(error) from None

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            super().__setattr__(name, value)
        except ValidationError as error:
            raise _in_our_words(error) from None

    def __getattr__(self, name: str) -> Any:
        if name in _DEFAULTS and name not in (self.model_extra or {}):
            return _DEFAULTS[name]
        return super().__getattr__(name)  # type: ignore[misc]

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        problems = _problems_of_extra(self.model_extra or {})
        if self.hidden_size % self.num_attention_heads:
            problems.append(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
        if self.pad_token_id is not None and self.pad_token_id >= self.vocab_size:
            problems.append(f"pad_token_id {self.pad_token_id} must be smaller than vocab_size {self.vocab_size}")
        if sorted(self.id2label) != list(range(len(self.id2label))):
            problems.append(f"id2label must number its labels from 0 to {len(self.id2label) - 1}")
        if not all(name.isprintable() for name in self.id2label.values()):
            problems.append("id2label has a label that cannot be printed")
        if len(set(self.id2label.values())) != len(self.id2label):
            problems.append("id2label has the same label twice")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @classmethod
    def of_size(cls, size: str, **settings: Any) -> Self:
        """Return the settings of a size in SIZES, such as `tiny` or `base`. `settings` replace fields."""
        if size not in SIZES:
            raise unknown_name("size", size, list(SIZES))
        layers, hidden, heads = SIZES[size]
        shape = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
        return cls(**{**shape, "intermediate_size": 4 * hidden, **settings})

    @property
    def num_labels(self) -> int:
        """As in Hugging Face: the number of labels. Assigning it resets the label names."""
        return len(self.id2label)

    @num_labels.setter
    def num_labels(self, count: int) -> None:
        self.id2label = default_labels(count)

    @property
    def label2id(self) -> dict[str, int]:
        """As in Hugging Face: the inverse of `id2label`."""
        return {name: index for index, name in self.id2label.items()}

    @property
    def is_decoder(self) -> bool:
        """As in Hugging Face: `causal`."""
        return self.causal

    @is_decoder.setter
    def is_decoder(self, value: bool) -> None:
        self.causal = value

    def weights_per_piece(self, share_selected: float) -> float:
        """Return the mean number of weights that a piece is multiplied by in an MLM training step.

        The weights of the head, and of the last layer except keys and values, count only for selected pieces.
        """
        hidden, inner = self.hidden_size, self.intermediate_size
        keys_and_values, others = 2 * hidden * hidden, 2 * hidden * hidden + 2 * hidden * inner
        layers = self.num_hidden_layers * keys_and_values + (self.num_hidden_layers - 1 + share_selected) * others
        head = hidden * hidden + hidden * self.vocab_size
        return layers + share_selected * head

    def with_settings(self, **settings: Any) -> Self:
        """Return a copy with some fields replaced. A new `num_labels` without names resets the label names."""
        has_same_number = settings.get("num_labels", self.num_labels) == self.num_labels
        if "id2label" not in settings and ("label2id" in settings or not has_same_number):
            settings["id2label"] = None
        return type(self)(**{**dict(self), **settings})

    def update(self, settings: Mapping[str, Any]) -> None:
        """As in Hugging Face: assign each of `settings`."""
        for name, value in settings.items():
            setattr(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of config.json."""
        not_kept = {*_NOT_KEPT, *_ONLY_VALUES}
        settings = {name: value for name, value in (self.model_extra or {}).items() if name not in not_kept}
        settings |= {"is_decoder": self.causal, "model_type": MODEL_TYPE}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            # As in Hugging Face's files, None and booleans are omitted if they are the default.
            if name not in ("causal", "id2label") and (value != field.default or not isinstance(value, bool | None)):
                settings[name] = value
        if self.id2label != default_labels(2):
            settings["id2label"] = {str(index): name for index, name in sorted(self.id2label.items())}
            settings["label2id"] = self.label2id
        return dict(sorted(settings.items()))

    def to_diff_dict(self) -> dict[str, Any]:
        """As in Hugging Face: the content of config.json that differs from the defaults."""
        defaults = BertConfig().to_dict()
        differing = {name: value for name, value in self.to_dict().items() if value != defaults.get(name)}
        return {**differing, "model_type": MODEL_TYPE}

    def get_text_config(self, **_options: Any) -> Self:
        """As in Hugging Face: the settings of the part that reads text, which is the whole model."""
        return self

    def to_json_string(self) -> str:
        """As in Hugging Face: the content of config.json as text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Create a config from the content of config.json. Unknown keys are kept."""
        return cls(**{key: value for key, value in settings.items() if key not in _NOT_KEPT})

    @classmethod
    def of(cls, config: Any) -> Self:
        """Return `config`, converted if it is a `transformers` config."""
        if isinstance(config, cls):
            return config
        if not hasattr(config, "to_dict"):
            raise UsageError(f"config must be a BertConfig, not {type(config).__name__}")
        return cls.from_dict(config.to_dict())

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **settings: Any) -> Self:
        """Read the settings of a model folder, an installed model or a model on the Hub; `settings` replace fields.

        Hugging Face's arguments for loading are accepted, too (see `bertmill.checkpoint.arguments`).
        """
        hub = hub_arguments(settings)
        check_and_drop(settings, LOADING)
        folder = find_model(pretrained_model_name_or_path, **hub)
        return cls.from_file_settings(read_model_settings(folder), folder / CONFIG_FILE).with_settings(**settings)

    @classmethod
    def from_file_settings(cls, settings: Mapping[str, Any], path: Path) -> Self:
        """Like `from_dict`, but raise an IntegrityError that names the file `path`."""
        try:
            return cls.from_dict(settings)
        except UsageError as error:
            raise IntegrityError(error.what, where=path) from None

    def save_pretrained(self, folder: str | Path) -> None:
        """Write config.json to `folder`, which is created if necessary."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_file(Path(folder) / CONFIG_FILE, self.to_json_string())


def _problems_of_extra(settings: Mapping[str, Any]) -> list[str]:
    """What is wrong with settings that are not fields."""
    problems = [
        f"{name} is {settings[name]!r}, but only {allowed[0]!r} is supported"
        for name, allowed in _ONLY_VALUES.items()
        if name in settings and settings[name] not in allowed
    ]
    for name in settings:
        if similar := difflib.get_close_matches(name, BertConfig.model_fields, 1, _MISSPELLED):
            problems.append(f"{name} is not a setting of BertConfig; did you mean {similar[0]}?")
    return problems


def _in_our_words(error: ValidationError) -> UsageError:
    return UsageError("; ".join(_problem(dict(detail)) for detail in error.errors()))


def _problem(detail: dict[str, Any]) -> str:
    """Format a pydantic error as `field is value: what is expected`."""
    name = ".".join(map(str, detail["loc"]))
    if detail["type"] == "value_error":  # raised by _check_together
        return str(detail["ctx"]["error"])
    value = repr(detail["input"])
    shown = value if len(value) <= 60 else value[:57] + "…"
    return f"{name} is {shown}: {detail['msg'][0].lower()}{detail['msg'][1:]}"
