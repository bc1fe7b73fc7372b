"""`pad` gives the same results as in transformers, so that its data collators work."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
)

import bertmill
from bertmill.errors import UsageError
from bertmill.text.vocabulary import SPECIAL_TOKENS

VOCABULARY = {piece: number for number, piece in enumerate([*SPECIAL_TOKENS, "good", "film", "##s", "new"])}
OURS = bertmill.BertTokenizerFast(dict(VOCABULARY))
THEIRS = transformers.BertTokenizerFast(dict(VOCABULARY))
TEXTS = ["good films", "new", "good good film new films"]
SINGLE: Any = {"input_ids": [2, 5, 3]}
ROWS: Any = [dict(THEIRS(text)) for text in TEXTS]
IDS: Any = [{"input_ids": row["input_ids"]} for row in ROWS]
LABELED = [{**row, "labels": number / 2} for number, row in enumerate(ROWS)]
TENSORS = [{name: torch.tensor(value) for name, value in row.items()} for row in ROWS]
ARRAYS = [{name: np.array(value) for name, value in row.items()} for row in ROWS]


def same(ours: Any, theirs: Any) -> bool:
    assert type(ours) is type(theirs)
    if isinstance(ours, torch.Tensor | np.ndarray):
        assert ours.dtype == theirs.dtype
        return ours.tolist() == theirs.tolist()
    return bool(ours == theirs)


@pytest.mark.parametrize(
    ("inputs", "arguments"),
    [
        (SINGLE, {}),
        (SINGLE, {"padding": "max_length", "max_length": 6}),
        (ROWS, {}),
        (ROWS, {"padding": False}),
        (ROWS, {"padding": "max_length", "max_length": 5}),
        (ROWS, {"padding": "longest", "pad_to_multiple_of": 8, "return_tensors": "pt"}),
        (ROWS, {"padding": "max_length", "max_length": 9, "pad_to_multiple_of": 8}),
        (ROWS, {"padding_side": "left", "return_tensors": "np"}),
        (IDS, {"return_attention_mask": False}),
        (IDS, {"return_tensors": "pt"}),
        ({name: [row[name] for row in ROWS] for name in ROWS[0]}, {}),
        (LABELED, {"return_tensors": "pt"}),
        (LABELED, {"return_tensors": "np"}),
        (TENSORS, {}),
        (ARRAYS, {}),
        ([OURS(text, return_special_tokens_mask=True) for text in TEXTS], {"return_tensors": "pt"}),
    ],
)
def test_pad_gives_the_result_of_transformers(inputs: Any, arguments: dict[str, Any]) -> None:
    ours, theirs = OURS.pad(inputs, **arguments), THEIRS.pad(inputs, **arguments)
    assert list(ours) == list(theirs)
    assert all(same(ours[name], theirs[name]) for name in theirs)


def test_an_attention_mask_that_is_not_wanted_is_dropped() -> None:
    assert list(OURS.pad(ROWS, return_attention_mask=False)) == ["input_ids", "token_type_ids"]


def test_the_inputs_of_pad_are_unchanged() -> None:
    row = {"input_ids": [2, 5, 3]}
    OURS.pad([row, ROWS[2]])
    assert row == {"input_ids": [2, 5, 3]}


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_data_collators_of_transformers_give_the_same_batch(side: Any) -> None:
    word_labels = [{**row, "labels": list(range(len(row["input_ids"])))} for row in ROWS]
    batches = []
    for tokenizer in (OURS, THEIRS):
        tokenizer.padding_side = side
        torch.manual_seed(0)
        batches.append(
            [
                DataCollatorWithPadding(tokenizer, pad_to_multiple_of=4)(LABELED),  # type: ignore[arg-type]
                DataCollatorForTokenClassification(tokenizer)(word_labels),  # type: ignore[arg-type]
                DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.5)(ROWS),  # type: ignore[arg-type]
                DataCollatorForLanguageModeling(tokenizer, mlm=False)(ROWS),  # type: ignore[arg-type]
            ]
        )
        tokenizer.padding_side = "right"
    for ours, theirs in zip(*batches, strict=True):
        assert set(ours) == set(theirs)
        assert all(same(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize(
    ("inputs", "arguments", "message"),
    [
        ({"labels": [1]}, {}, "expects input_ids, but the inputs have only labels"),
        (3, {}, "not int"),
        (["text"], {}, "not list"),
        (ROWS, {"padding_side": "up"}, "unknown padding_side 'up'"),
        (ROWS, {"padding": "most"}, "unknown padding 'most'"),
        (ROWS, {"padding": "max_length"}, "needs a max_length"),
        (ROWS, {"padding": False, "return_tensors": "pt"}, "sequences of different lengths"),
        ([{**row, "name": "a"} for row in ROWS], {"return_tensors": "pt"}, "name cannot form a tensor"),
    ],
)
def test_invalid_inputs_are_usage_errors(inputs: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        OURS.pad(inputs, **arguments)
