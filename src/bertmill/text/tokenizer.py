"""BertTokenizer: texts in, model inputs out, with Hugging Face's names and defaults.

It lays out the pieces of `WordPiece` as sequences: special tokens, pairs, truncation or windows, padding, tensors.
Code written for `transformers.BertTokenizer` runs with the import line changed. Results are identical, except for
offsets, which include the accents that were stripped from a piece's last character.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, cast, get_args

from bertmill.checkpoint.arguments import LOADING, SAVING, check_and_drop, hub_arguments, require_none_left
from bertmill.checkpoint.files import VOCABULARY_FILE
from bertmill.checkpoint.names import find_model_or_file
from bertmill.errors import UsageError
from bertmill.storage import write_file
from bertmill.text.encoding import BatchEncoding, Encoding, TextPieces, array_kind, as_arrays
from bertmill.text.padding import NO_LIMIT, Padding, as_columns, as_lists, check_side, pad_columns, padded_length
from bertmill.text.tokenizer_files import NAMED_TOKENS, read_tokenizer_files, write_tokenizer_files
from bertmill.text.tokenizer_vocabulary import TokenizerVocabulary
from bertmill.text.truncation import Side, Strategy, plan_windows
from bertmill.text.vocabulary import vocabulary_text

Words = Sequence[str]
Text = str | Words  # a text; with is_split_into_words, its words


class BertTokenizer(TokenizerVocabulary):
    """The WordPiece tokenizer of a BERT model, with the interface of Hugging Face's `BertTokenizer`."""

    model_input_names: ClassVar[list[str]] = ["input_ids", "token_type_ids", "attention_mask"]
    is_fast = True  # its results map pieces to characters

    def __init__(
        self,
        vocab: dict[str, int] | str | Path,
        do_lower_case: bool = True,
        *,
        unk_token: str = "[UNK]",
        sep_token: str = "[SEP]",
        pad_token: str = "[PAD]",
        cls_token: str = "[CLS]",
        mask_token: str = "[MASK]",
        additional_special_tokens: Collection[Any] = (),
        extra_special_tokens: Collection[Any] = (),
        added_tokens: Collection[Any] = (),
        base_size: int | None = None,
        tokenize_chinese_chars: bool = True,
        strip_accents: bool | None = None,
        never_split: Collection[str] | None = None,
        model_max_length: float = NO_LIMIT,
        padding_side: Side = "right",
        truncation_side: Side = "right",
        name_or_path: str = "",
    ) -> None:
        """`vocab` is a dict or the path of a `vocab.txt`.

        Added tokens, which may be special, get new ids unless they are in the vocabulary. `base_size` is the number of
        pieces in the vocabulary that were not added.
        """
        named = (pad_token, unk_token, cls_token, sep_token, mask_token)
        super().__init__(
            vocab,
            dict(zip(NAMED_TOKENS, named, strict=True)),
            {
                "lowercase": do_lower_case,
                "strip_accents": strip_accents,
                "chinese_characters": tokenize_chinese_chars,
                "never_split": sorted(never_split or ()),
            },
            base_size,
            name_or_path,
        )
        self.do_lower_case = do_lower_case
        self.tokenize_chinese_chars = tokenize_chinese_chars
        self.strip_accents = strip_accents
        self.never_split = sorted(never_split or ())
        self.model_max_length = int(model_max_length)
        self.padding_side = padding_side
        self.truncation_side = truncation_side
        self.add_tokens(list(added_tokens))
        self.add_special_tokens({"additional_special_tokens": [*additional_special_tokens, *extra_special_tokens]})

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | Path, *, check_hashes: bool = True, **settings: Any
    ) -> BertTokenizer:
        """Load a `vocab.txt`, or the tokenizer of a model folder, an installed model or a model on the Hub.

        `settings` are arguments of the class, which override those in the files, or Hugging Face's arguments for
        loading (see `bertmill.checkpoint.arguments`). With `check_hashes`, raise IntegrityError if a file differs from
        the manifest of its folder.
        """
        hub = hub_arguments(settings)
        check_and_drop(settings, LOADING)
        path = find_model_or_file(pretrained_model_name_or_path, **hub)
        files = read_tokenizer_files(path, check_hashes=check_hashes)
        arguments = {"name_or_path": str(path), **files.arguments(), **settings}
        require_none_left({name: None for name in arguments if name not in _ARGUMENTS}, "BertTokenizer")
        return cls(files.vocabulary, **arguments)

    def save_pretrained(self, folder: str | Path, **arguments: Any) -> tuple[str, ...]:
        """Write `vocab.txt`, `tokenizer.json` and `tokenizer_config.json`, and return their paths.

        Hugging Face tools can read them. `arguments` are Hugging Face's (see `bertmill.checkpoint.arguments`).
        """
        check_and_drop(arguments, SAVING)
        require_none_left(arguments, "save_pretrained")
        settings = {name: getattr(self, name) for name in _SAVED_SETTINGS}
        settings["never_split"] = self.never_split or None
        if self.additional_special_tokens:
            settings["additional_special_tokens"] = self.additional_special_tokens
        return write_tokenizer_files(Path(folder), self.vocab, self.vocab_size, self.is_special, settings)

    def save_vocabulary(self, save_directory: str | Path, filename_prefix: str | None = None) -> tuple[str]:
        """Write only `vocab.txt`, or `PREFIX-vocab.txt`, and return its path."""
        path = Path(save_directory, f"{filename_prefix}-{VOCABULARY_FILE}" if filename_prefix else VOCABULARY_FILE)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, vocabulary_text(self.vocab))
        return (str(path),)

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """The number of special tokens around one text, or around a pair."""
        return 3 if pair else 2

    def __call__(
        self,
        text: Text | Sequence[Text],
        text_pair: Text | Sequence[Text] | None = None,
        *,
        add_special_tokens: bool = True,
        padding: Padding = False,
        truncation: bool | Strategy | None = None,
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: Side | None = None,
        return_tensors: Literal["pt", "np"] | None = None,
        return_token_type_ids: bool = True,
        return_attention_mask: bool = True,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        split_special_tokens: bool = False,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Encode a text, a pair of texts, or a batch of either. Arguments and defaults are Hugging Face's.

        `stride` is the number of pieces by which adjacent windows overlap. A special string such as `[MASK]` in the
        text becomes the special id unless `split_special_tokens` is set. `verbose` has no effect.
        """
        is_batch = isinstance(text, list | tuple) and (
            not is_split_into_words or (len(text) > 0 and isinstance(text[0], list | tuple))
        )
        rows = _rows(text, text_pair, is_batch, is_split_into_words)
        if truncation is None:  # as in Hugging Face: max_length without padding implies truncation
            truncation = max_length is not None and padding is False
        strategy = _strategy(truncation)
        room = self.model_max_length if max_length is None else max_length
        encodings: list[Encoding] = []
        row_of_encoding: list[int] = []
        for number, row in enumerate(rows):
            texts = tuple(self._text_pieces(part, is_split_into_words, split_special_tokens) for part in row)
            windows = self._encode_windows(texts, room, strategy, stride, add_special_tokens, return_overflowing_tokens)
            encodings += windows
            row_of_encoding += [number] * len(windows)
        limit = None if strategy == "do_not_truncate" else max_length
        _check_multiple(padding, limit, pad_to_multiple_of)
        encodings = self._pad(encodings, padding, max_length, pad_to_multiple_of, padding_side or self.padding_side)
        wanted = (return_token_type_ids, return_attention_mask, return_special_tokens_mask, return_offsets_mapping)
        columns = [column for column, is_wanted in zip(_COLUMNS, (True, *wanted), strict=True) if is_wanted]
        data: dict[str, Any] = {theirs: [getattr(row, ours) for row in encodings] for theirs, ours in columns}
        if return_length:
            data["length"] = [len(encoding) for encoding in encodings]
        if return_overflowing_tokens:
            data["overflow_to_sample_mapping"] = row_of_encoding
        if return_tensors is not None:
            data = as_arrays(data, return_tensors)
        elif not is_batch and not return_overflowing_tokens:
            data = {name: column if name == "length" else column[0] for name, column in data.items()}
        return BatchEncoding(data, encodings)

    def encode(self, text: Text, text_pair: Text | None = None, **arguments: Any) -> Any:
        """The ids of one text or pair; takes the arguments of `__call__`."""
        return self(text, text_pair, **arguments)["input_ids"]

    def tokenize(self, text: str, pair: str | None = None, add_special_tokens: bool = False, **more: Any) -> list[str]:
        """The pieces of a text or pair, as strings."""
        return self(text, pair, add_special_tokens=add_special_tokens, **more).tokens()

    def _text_pieces(self, text: Text, is_split_into_words: bool, split_special: bool) -> TextPieces:
        if isinstance(text, str) is is_split_into_words:
            expected = "a list of words" if is_split_into_words else "a string"
            raise UsageError(f"a text must be {expected}, not {type(text).__name__}")
        if isinstance(text, str):
            ids = self.wordpiece.ids(text, split_special=split_special).tolist()
            return TextPieces(ids, lambda: _located(*self.wordpiece.pieces(text, split_special=split_special)[1:]))
        pieces = [self.wordpiece.pieces(word, split_special=split_special) for word in text]
        ids = [number for word in pieces for number in word.ids.tolist()]
        offsets = [offset for word in pieces for offset in _located(*word[1:])[0]]
        words = [number for number, word in enumerate(pieces) for _ in word.ids]
        return TextPieces(ids, lambda: (offsets, words))

    def _encode_windows(
        self, texts: tuple[TextPieces, ...], room: int, strategy: Strategy, stride: int, special: bool, overflow: bool
    ) -> list[Encoding]:
        lengths = tuple(len(text.ids) for text in texts)
        room -= self.num_special_tokens_to_add(len(texts) == 2) if special else 0
        windows = plan_windows(lengths, room, strategy, stride=stride, side=self.truncation_side, overflow=overflow)
        ids = (self.cls_token_id, self.sep_token_id) if special else None
        return [Encoding(texts, window, ids, self.pad_token_id, self._piece_of_id.__getitem__) for window in windows]

    def _pad(
        self, encodings: list[Encoding], padding: Padding, max_length: int | None, multiple: int | None, side: Side
    ) -> list[Encoding]:
        check_side(side)
        length = padded_length(
            max(map(len, encodings), default=0), padding, max_length, multiple, self.model_max_length
        )
        return encodings if length is None else [encoding.padded(length, side) for encoding in encodings]

    def pad(
        self,
        encoded_inputs: Any,
        padding: Padding = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: Side | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: Literal["pt", "np"] | None = None,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Pad encoded inputs: one sequence, a batch, or a list of sequences. Data collators call this method.

        The result has tensors or arrays if the inputs had them. `verbose` has no effect.
        """
        columns = as_columns(encoded_inputs)
        if "input_ids" not in columns:
            raise UsageError(f"pad expects input_ids, but the inputs have only {', '.join(columns) or 'nothing'}")
        kind = return_tensors or array_kind(columns["input_ids"])
        columns = {name: as_lists(rows) for name, rows in columns.items()}
        ids = columns["input_ids"]
        is_batch = len(ids) > 0 and isinstance(ids[0], list)
        if not is_batch:
            columns = {name: [row] for name, row in columns.items()}
        rows = columns["input_ids"]
        if return_attention_mask is not False:
            columns.setdefault("attention_mask", [[1] * len(row) for row in rows])
        else:
            columns.pop("attention_mask", None)
        side = padding_side or self.padding_side
        check_side(side)
        length = padded_length(max(map(len, rows)), padding, max_length, pad_to_multiple_of, self.model_max_length)
        fills = {"input_ids": self.pad_token_id, "token_type_ids": 0, "attention_mask": 0, "special_tokens_mask": 1}
        columns = pad_columns(columns, length, side, fills)
        if not is_batch:
            columns = {name: row[0] for name, row in columns.items()}
        return BatchEncoding(columns if kind is None else as_arrays(columns, kind), [])


_SAVED_SETTINGS = (
    *("do_lower_case", "tokenize_chinese_chars", "strip_accents", "never_split", "model_max_length", "padding_side"),
    *("truncation_side", "pad_token", "unk_token", "cls_token", "sep_token", "mask_token"),
)

_ARGUMENTS = frozenset(inspect.signature(BertTokenizer).parameters) - {"vocab"}
BertTokenizerFast = BertTokenizer

_COLUMNS = (  # Hugging Face's column names, and ours
    ("input_ids", "ids"),
    ("token_type_ids", "type_ids"),
    ("attention_mask", "attention_mask"),
    ("special_tokens_mask", "special_tokens_mask"),
    ("offset_mapping", "offsets"),
)


def _rows(text: Any, text_pair: Any, is_batch: bool, is_split: bool) -> list[tuple[Text, ...]]:
    """The texts of each row: one or two."""
    if not is_batch:
        return [(text, text_pair)] if text_pair else [(text,)]
    if text_pair is None:
        is_pair = (list | tuple) if not is_split else tuple  # as in Hugging Face
        rows = [tuple(row) if isinstance(row, is_pair) else (row,) for row in text]
        if any(len(row) not in (1, 2) for row in rows):
            raise UsageError("each row of a batch must be a text or a pair of texts")
        return rows
    if isinstance(text_pair, str) or len(text_pair) != len(text):
        raise UsageError(f"text_pair must be a list with as many texts as text ({len(text)})")
    return list(zip(text, text_pair, strict=True))


def _check_multiple(padding: Padding, max_length: int | None, multiple: int | None) -> None:
    """Raise UsageError if padding would exceed `max_length`, to which texts are truncated."""
    if padding == "max_length" and max_length is not None and multiple and max_length % multiple:
        raise UsageError(f"max_length {max_length} is not a multiple of pad_to_multiple_of {multiple}")


def _strategy(truncation: bool | str) -> Strategy:
    if truncation in (True, False):
        return "longest_first" if truncation else "do_not_truncate"
    if truncation not in get_args(Strategy):
        remedy = f"use one of {', '.join(get_args(Strategy))}"
        raise UsageError(f"unknown truncation {truncation!r}", remedy=remedy)
    return cast(Strategy, truncation)


def _located(starts: Any, ends: Any, words: Any) -> tuple[list[tuple[int, int]], list[int]]:
    return list(zip(starts.tolist(), ends.tolist(), strict=True)), words.tolist()
