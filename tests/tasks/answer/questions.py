"""Helpers for the tests of answer: a question about a passage, as a row and as an example."""

from __future__ import annotations

import numpy as np

from bertmill.batching.windows import Windows
from bertmill.tasks.answer.rows import QuestionRow
from bertmill.tasks.answer.spans import QuestionExample
from bertmill.tasks.answer.task import AnswerQuestions
from bertmill.text.tokenizer import BertTokenizer

TOKENIZER = BertTokenizer.from_pretrained("minilm")
TASK = AnswerQuestions()
PASSAGE = "The capital of France is Paris."
QUESTION = "What is the capital of France?"


def row_of(passage: str, answer: str | None = None, question: str = QUESTION) -> QuestionRow:
    if answer is None:
        return QuestionRow("f:1", (question, passage))
    start = passage.index(answer)
    return QuestionRow("f:1", (question, passage), ((start, start + len(answer)),))


def encode(row: QuestionRow, max_length: int = 384, stride: int = 128) -> QuestionExample:
    return TASK.encode(row, Windows(TOKENIZER, max_length, stride))


def logits_for(example: QuestionExample, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(example.num_pieces, 2)).astype(np.float32)
