"""The vocabulary of a tokenizer: special and added tokens, and conversions between ids, pieces and text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertmill.errors import UsageError
from bertmill.text.tokenizer_files import NAMED_TOKENS
from bertmill.text.vocabulary import check_vocabulary, read_vocabulary
from bertmill.text.wordpiece import CONTINUATION, WordPiece

_MORE_SPECIAL = ("additional_special_tokens", "extra_special_tokens")  # two names of the same list


class TokenizerVocabulary:
    """The part of BertTokenizer that knows pieces and ids, but not how sequences are laid out."""

    pad_token_type_id = 0
    pad_token_id: int
    unk_token_id: int
    cls_token_id: int
    sep_token_id: int
    mask_token_id: int

    def __init__(
        self,
        vocab: dict[str, int] | str | Path,
        named_tokens: Mapping[str, Any],
        settings: Mapping[str, Any],
        base_size: int | None = None,
        name_or_path: str = "",
    ) -> None:
        """`settings` are arguments of WordPiece; see BertTokenizer for the other arguments."""
        self.name_or_path = name_or_path or ("" if isinstance(vocab, dict) else str(vocab))
        vocabulary = vocab if isinstance(vocab, dict) else read_vocabulary(Path(vocab))
        named = {name: _content(token) for name, token in named_tokens.items()}
        check_vocabulary(vocabulary, tuple(named.values()), self.name_or_path or "the vocabulary given")
        self.pad_token, self.unk_token, self.cls_token, self.sep_token, self.mask_token = named.values()
        self.vocab_size = len(vocabulary) if base_size is None else base_size
        self.additional_special_tokens: list[str] = []
        self.is_special: dict[str, bool] = {}  # added tokens, in the order in which they were added
        self._settings = settings
        self._add(vocabulary, named.values(), special=True)

    @property
    def vocab(self) -> dict[str, int]:
        """The vocabulary: piece → id."""
        return self.wordpiece.vocabulary

    def __len__(self) -> int:
        return len(self.vocab)

    def get_vocab(self) -> dict[str, int]:
        """A copy of the vocabulary: piece → id."""
        return dict(self.vocab)

    def add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        """Add a token or a list of tokens, and return how many are new. The model needs as many embeddings.

        As in Hugging Face, tokens that are not special are found in the normalized text, also inside words.
        """
        tokens = [new_tokens] if isinstance(new_tokens, str) or hasattr(new_tokens, "content") else [*new_tokens]
        contents = list(map(_content, tokens))
        is_special = [special_tokens or getattr(token, "special", False) for token in tokens]
        special = [content for content, special in zip(contents, is_special, strict=True) if special]
        plain = [content for content in contents if content not in special]
        for token, content in zip(tokens, contents, strict=True):
            if content in plain and getattr(token, "normalized", True) is False:
                raise UsageError(f"the token {content!r} sets normalized=False, which only special tokens can do")
        num_before = len(self.is_special)
        if special or any(token not in self.is_special for token in plain):
            self._add(self.vocab, special, special=True)
            self._add(self.vocab, plain, special=False)
        return len(self.is_special) - num_before

    def add_special_tokens(
        self, special_tokens_dict: Mapping[str, Any], replace_extra_special_tokens: bool = True
    ) -> int:
        """Set special tokens by name (`cls_token`, `additional_special_tokens` …), and return how many are new."""
        for name in special_tokens_dict:
            if name not in (*_MORE_SPECIAL, *NAMED_TOKENS):
                raise UsageError(f"{name} is not a special token of BERT", remedy=f"known: {', '.join(NAMED_TOKENS)}")
        # Validate all tokens before changing anything.
        contents = {
            name: [_content(token) for token in (value if name in _MORE_SPECIAL else [value])]
            for name, value in special_tokens_dict.items()
        }
        for name, tokens in contents.items():
            if name in _MORE_SPECIAL:
                kept = [] if replace_extra_special_tokens and tokens else self.additional_special_tokens
                self.additional_special_tokens = list(dict.fromkeys([*kept, *tokens]))
            else:
                setattr(self, name, tokens[0])
        return self.add_tokens([token for tokens in contents.values() for token in tokens], special_tokens=True)

    def _add(self, vocabulary: Mapping[str, int], tokens: Iterable[str], *, special: bool) -> None:
        """Add tokens to the vocabulary unless they are in it, and build everything that depends on it."""
        vocabulary, next_id = dict(vocabulary), max(vocabulary.values()) + 1
        for token in tokens:
            if vocabulary.setdefault(token, next_id) == next_id:
                next_id += 1
            self.is_special.setdefault(token, special)
        self.wordpiece = WordPiece(
            vocabulary,
            **self._settings,
            special_tokens=[token for token, is_special in self.is_special.items() if is_special],
            added_tokens=[token for token, is_special in self.is_special.items() if not is_special],
            unknown=self.unk_token,
        )
        for name in NAMED_TOKENS:
            setattr(self, f"{name}_id", vocabulary[getattr(self, name)])
        self._piece_of_id = {number: piece for piece, number in vocabulary.items()}
        self._piece_of_id |= {vocabulary[token]: text for token, text in self.wordpiece.added.normalized.items()}

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """The named special tokens, such as `cls_token`."""
        return {name: getattr(self, name) for name in NAMED_TOKENS}

    @property
    def extra_special_tokens(self) -> list[str]:
        """Another name of `additional_special_tokens`."""
        return self.additional_special_tokens

    @property
    def all_special_tokens(self) -> list[str]:
        """The named and the additional special tokens."""
        return list(dict.fromkeys([*self.special_tokens_map.values(), *self.additional_special_tokens]))

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of `all_special_tokens`."""
        return [self.vocab[token] for token in self.all_special_tokens]

    def get_added_vocab(self) -> dict[str, int]:
        """The added tokens, among them the special ones, with their ids."""
        return {token: self.vocab[token] for token in sorted(self.is_special, key=self.vocab.__getitem__)}

    def get_special_tokens_mask(
        self,
        token_ids_0: Sequence[int],
        token_ids_1: Sequence[int] | None = None,
        already_has_special_tokens: bool = False,
    ) -> list[int]:
        """1 for each special token, otherwise 0: in ids that contain them, or of a text or pair once they are added."""
        if already_has_special_tokens:
            if token_ids_1 is not None:
                raise UsageError("ids that have special tokens are one sequence, so token_ids_1 must be None")
            special = set(self.all_special_ids)
            return [int(int(number) in special) for number in token_ids_0]
        second = [] if token_ids_1 is None else [*[0] * len(token_ids_1), 1]
        return [1, *[0] * len(token_ids_0), 1, *second]

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

    def decode(
        self, token_ids: Any, skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool | None = None
    ) -> Any:
        """Convert ids to text; a list of rows gives a list of texts.

        With `clean_up_tokenization_spaces`, also removes the spaces in contractions of several pieces (`it ' s`).
        """
        ids = token_ids.tolist() if hasattr(token_ids, "tolist") else token_ids
        if isinstance(ids, int):
            ids = [ids]
        if len(ids) > 0 and not isinstance(ids[0], int):
            return self.batch_decode(ids, skip_special_tokens, clean_up_tokenization_spaces)
        pieces = self.convert_ids_to_tokens(ids, skip_special_tokens)
        text = self.convert_tokens_to_string([piece for piece in pieces if piece is not None])
        return _clean_up(text, _CLEANED_IN_TEXTS) if clean_up_tokenization_spaces else text

    def batch_decode(
        self, sequences: Any, skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool | None = None
    ) -> list[str]:
        """Convert each row of ids to text; a single row gives a list of one text."""
        rows = sequences.tolist() if hasattr(sequences, "tolist") else sequences
        if len(rows) > 0 and isinstance(rows[0], int):
            rows = [rows]
        return [self.decode(ids, skip_special_tokens, clean_up_tokenization_spaces) for ids in rows]


def _content(token: Any) -> str:
    """The text of a token, given as a string or as an `AddedToken` of `tokenizers`."""
    content = getattr(token, "content", token)
    if not isinstance(content, str):
        raise UsageError(f"a token must be a string, not {type(token).__name__}")
    if not content:
        raise UsageError("a token is empty")
    if any(getattr(token, name, False) is True for name in ("lstrip", "rstrip", "single_word")):
        raise UsageError(f"the token {content!r} sets lstrip, rstrip or single_word, which is not supported")
    return content


# Applied in this order; a string without a replacement only loses its first space.
_CLEANED = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " do not", " 's", " 've", " 're")
_CLEANED_IN_TEXTS = tuple(each for each in _CLEANED if each != " do not")
_REPLACEMENTS = {" ' ": "'", " do not": " don't"}


def _clean_up(text: str, cleaned: Sequence[str] = _CLEANED) -> str:
    for old in cleaned:
        text = text.replace(old, _REPLACEMENTS.get(old, old[1:]))
    return text
