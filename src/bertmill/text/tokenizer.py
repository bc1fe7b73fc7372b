"""BertTokenizer: texts in, model inputs out, with Hugging Face's names and defaults.

It lays out the pieces of `WordPiece` as sequences: special tokens, pairs, truncation or windows, padding, tensors.
Code written for `transformers.BertTokenizer` runs with the import line changed. Results are identical, except for
offsets, which include the accents that were stripped from a piece's last character.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args

from bertmill.checkpoint.names import find_model
from bertmill.errors import UsageError
from bertmill.text.encoding import BatchEncoding, Encoding, TextPieces, as_arrays
from bertmill.text.tokenizer_files import read_tokenizer_files, write_tokenizer_files
from bertmill.text.truncation import Side, Strategy, plan_windows
from bertmill.text.vocabulary import check_vocabulary, read_vocabulary
from bertmill.text.wordpiece import CONTINUATION, WordPiece

Words = Sequence[str]
Text = str | Words  # a text; with is_split_into_words, its words
Padding = bool | Literal["longest", "max_length", "do_not_pad"]
NO_LIMIT = int(1e30)  # as in Hugging Face: the tokenizer does not know the length of its model


class BertTokenizer:
    """The WordPiece tokenizer of a BERT model, with the interface of Hugging Face's `BertTokenizer`."""

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
        special_tokens: Collection[str] = (),
        tokenize_chinese_chars: bool = True,
        strip_accents: bool | None = None,
        never_split: Collection[str] | None = None,
        model_max_length: float = NO_LIMIT,
        padding_side: Side = "right",
        truncation_side: Side = "right",
        name_or_path: str = "",
    ) -> None:
        """`vocab` is a dict or the path of a `vocab.txt`; `special_tokens` come in addition to the five named ones."""
        named = (pad_token, unk_token, cls_token, sep_token, mask_token)
        self.name_or_path = name_or_path or ("" if isinstance(vocab, dict) else str(vocab))
        vocabulary = vocab if isinstance(vocab, dict) else read_vocabulary(Path(vocab))
        check_vocabulary(vocabulary, (*named, *special_tokens), self.name_or_path or "the vocabulary given")
        self.pad_token, self.unk_token, self.cls_token, self.sep_token, self.mask_token = named
        ids = (vocabulary[token] for token in named)
        self.pad_token_id, self.unk_token_id, self.cls_token_id, self.sep_token_id, self.mask_token_id = ids
        self.all_special_tokens = list(dict.fromkeys([*named, *special_tokens]))
        self.all_special_ids = [vocabulary[token] for token in self.all_special_tokens]
        self.do_lower_case = do_lower_case
        self.tokenize_chinese_chars = tokenize_chinese_chars
        self.strip_accents = strip_accents
        self.never_split = sorted(never_split or ())
        self.model_max_length = int(model_max_length)
        self.padding_side = padding_side
        self.truncation_side = truncation_side
        self.wordpiece = WordPiece(
            vocabulary,
            lowercase=do_lower_case,
            strip_accents=strip_accents,
            chinese_characters=tokenize_chinese_chars,
            never_split=self.never_split,
            special_tokens=self.all_special_tokens,
            unknown=unk_token,
        )
        self._piece_of_id = {number: piece for piece, number in vocabulary.items()}

    @classmethod
    def from_pretrained(cls, name: str | Path, *, check_hashes: bool = True, **settings: Any) -> BertTokenizer:
        """Load the tokenizer of a model folder, an installed model (`minilm`) or a `vocab.txt`.

        `settings` are arguments of the class and override those in the files. With `check_hashes`, raise IntegrityError
        if a file differs from the manifest of its folder.
        """
        path = Path(name) if Path(name).is_file() else find_model(name)
        files = read_tokenizer_files(path, check_hashes=check_hashes)
        arguments = {"name_or_path": str(path), "special_tokens": files.special_tokens, **files.settings, **settings}
        return cls(files.vocabulary, **arguments)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `vocab.txt`, `tokenizer.json` and `tokenizer_config.json`, which Hugging Face tools can read."""
        settings = {name: getattr(self, name) for name in _SAVED_SETTINGS}
        settings["never_split"] = self.never_split or None
        write_tokenizer_files(Path(folder), self.vocab, self.all_special_tokens, settings)

    @property
    def vocab(self) -> dict[str, int]:
        """The vocabulary: piece → id."""
        return self.wordpiece.vocabulary

    @property
    def vocab_size(self) -> int:
        """The number of pieces in the vocabulary."""
        return len(self.vocab)

    def __len__(self) -> int:
        return len(self.vocab)

    def get_vocab(self) -> dict[str, int]:
        """A copy of the vocabulary: piece → id."""
        return dict(self.vocab)

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
    ) -> BatchEncoding:
        """Encode a text, a pair of texts, or a batch of either. Arguments and defaults are Hugging Face's.

        `stride` is the number of pieces by which adjacent windows overlap. A special string such as `[MASK]` in the
        text becomes the special id unless `split_special_tokens` is set.
        """
        is_batch = isinstance(text, list | tuple) and (
            not is_split_into_words or (len(text) > 0 and isinstance(text[0], list | tuple))
        )
        rows = _rows(text, text_pair, is_batch)
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

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """The id of a piece, or a list of ids for several; unknown pieces have the id of `[UNK]`."""
        if not isinstance(tokens, str):
            return list(map(self.convert_tokens_to_ids, tokens))
        return self.vocab.get(tokens, self.unk_token_id)

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """The piece of an id, or a list of pieces for several; None for an id that is not in the vocabulary."""
        if isinstance(ids, int):
            return self._piece_of_id.get(ids)
        skipped = set(self.all_special_ids) if skip_special_tokens else set()
        return [self._piece_of_id.get(int(number)) for number in ids if int(number) not in skipped]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Join pieces into readable text as Hugging Face does: without `##`, and no spaces before punctuation."""
        joined = (
            token.removeprefix(CONTINUATION) if token.startswith(CONTINUATION) else f" {token}" for token in tokens[1:]
        )
        return "".join(map(_clean_up, [*tokens[:1], *joined]))  # the first piece keeps its `##`

    def decode(self, token_ids: Any, skip_special_tokens: bool = False) -> Any:
        """Convert ids to text; a list of rows gives a list of texts."""
        ids = token_ids.tolist() if hasattr(token_ids, "tolist") else token_ids
        if isinstance(ids, int):
            ids = [ids]
        if len(ids) > 0 and not isinstance(ids[0], int):
            return self.batch_decode(ids, skip_special_tokens)
        pieces = self.convert_ids_to_tokens(ids, skip_special_tokens)
        return self.convert_tokens_to_string([piece for piece in pieces if piece is not None])

    def batch_decode(self, sequences: Any, skip_special_tokens: bool = False) -> list[str]:
        """Convert each row of ids to text; a single row gives a list of one text."""
        rows = sequences.tolist() if hasattr(sequences, "tolist") else sequences
        if len(rows) > 0 and isinstance(rows[0], int):
            rows = [rows]
        return [self.decode(ids, skip_special_tokens) for ids in rows]

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
        if padding not in (True, False, "longest", "max_length", "do_not_pad"):
            raise UsageError(f"unknown padding {padding!r}", remedy="use longest, max_length or do_not_pad")
        if side not in get_args(Side):
            raise UsageError(f"unknown padding_side {side!r}", remedy="use left or right")
        if padding in (False, "do_not_pad") or not encodings:
            return encodings
        if padding == "max_length":
            length = self.model_max_length if max_length is None else max_length
            if length >= NO_LIMIT:
                raise UsageError("padding to max_length needs a max_length", remedy="pass max_length")
        else:
            length = max(map(len, encodings))
        if multiple:
            length = -(-length // multiple) * multiple
            if padding == "max_length" and length > (max_length or length):
                raise UsageError(f"max_length {max_length} is not a multiple of pad_to_multiple_of {multiple}")
        return [encoding.padded(length, side) for encoding in encodings]


_SAVED_SETTINGS = (
    *("do_lower_case", "tokenize_chinese_chars", "strip_accents", "never_split", "model_max_length", "padding_side"),
    *("truncation_side", "pad_token", "unk_token", "cls_token", "sep_token", "mask_token"),
)

_COLUMNS = (  # Hugging Face's column names, and ours
    ("input_ids", "ids"),
    ("token_type_ids", "type_ids"),
    ("attention_mask", "attention_mask"),
    ("special_tokens_mask", "special_tokens_mask"),
    ("offset_mapping", "offsets"),
)


def _rows(text: Any, text_pair: Any, is_batch: bool) -> list[tuple[Text, ...]]:
    """The texts of each row: one or two."""
    if not is_batch:
        return [(text, text_pair)] if text_pair else [(text,)]
    if text_pair is None:
        rows = [row if isinstance(row, tuple) else (row,) for row in text]  # a tuple is a pair, as in Hugging Face
        if any(len(row) not in (1, 2) for row in rows):
            raise UsageError("each row of a batch must be a text or a pair of texts")
        return rows
    if isinstance(text_pair, str) or len(text_pair) != len(text):
        raise UsageError(f"text_pair must be a list with as many texts as text ({len(text)})")
    return list(zip(text, text_pair, strict=True))


def _strategy(truncation: bool | str) -> Strategy:
    if truncation in (True, False):
        return "longest_first" if truncation else "do_not_truncate"
    if truncation not in get_args(Strategy):
        remedy = f"use one of {', '.join(get_args(Strategy))}"
        raise UsageError(f"unknown truncation {truncation!r}", remedy=remedy)
    return cast(Strategy, truncation)


def _located(starts: Any, ends: Any, words: Any) -> tuple[list[tuple[int, int]], list[int]]:
    return list(zip(starts.tolist(), ends.tolist(), strict=True)), words.tolist()


# Applied in this order; a string without a replacement only loses its first space.
_CLEANED = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " do not", " 's", " 've", " 're")
_REPLACEMENTS = {" ' ": "'", " do not": " don't"}


def _clean_up(word: str) -> str:
    for old in _CLEANED:
        word = word.replace(old, _REPLACEMENTS.get(old, old[1:]))
    return word
