"""Question answering without the model: building inputs and selecting answers, against the usual code.

The usual code calls Hugging Face's fast tokenizer with overflowing windows and offsets, removes the offsets of the
question, and combines the best 20 starts with the best 20 ends. Both tools get the 6,078 questions of half of SQuAD
2.0's dev set and the same random scores instead of model outputs. Windows have 384 pieces; theirs overlap by 128, ours
advance by 128, so we have more windows. For questions with a single window, no answer of theirs may score higher than
ours.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Row, best_seconds
from bertmill.batching.windows import Windows
from bertmill.checkpoint.names import find_model
from bertmill.tasks.answer.rows import QuestionRow
from bertmill.tasks.answer.spans import NUM_BEST, QuestionExample, best_spans
from bertmill.tasks.answer.task import DEFAULT_ANSWER_PIECES, AnswerQuestions
from bertmill.text.tokenizer import BertTokenizer

MAX_LENGTH = 384
STRIDE = 128
BATCH_SIZE = 32
TARGET = 5.0
TOLERANCE = 1e-4

Scores = NDArray[np.float32]  # [questions, pieces, 2]
Texts = list[tuple[str, str]]  # question and passage


def measure(data: Path, rounds: int) -> Iterator[Row]:
    """Compare the throughput of both tools in questions per second."""
    texts = _texts(data / "squad2/dev-half.json")
    numbers = np.random.default_rng(0).normal(size=(len(texts), MAX_LENGTH, 2)).astype(np.float32)
    tokenizer = BertTokenizer.from_pretrained("minilm")
    their_tokenizer = _their_tokenizer()
    answers: dict[str, list[Any]] = {}
    sides = {
        "ours": lambda: answers.update(ours=answer_with_ours(texts, numbers, tokenizer)),
        "theirs": lambda: answers.update(theirs=answer_with_theirs(texts, numbers, their_tokenizer)),
    }
    seconds = best_seconds(sides, rounds)
    for one, other in zip(answers["ours"], answers["theirs"], strict=True):
        if one is not None and other is not None:
            (best,) = best_spans([one["example"]], [one["rows"]], DEFAULT_ANSWER_PIECES, 1)
            assert best.scores[0] >= other["score"] - TOLERANCE
    rates = {side: len(texts) / taken for side, taken in seconds.items()}
    rival = "transformers tokenizer, n-best loop"
    yield Row("answer", "inputs and answers", "row/s", rates["ours"], rates["theirs"], rival, TARGET)


def _texts(file: Path) -> Texts:
    articles = json.loads(file.read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    return [(each["question"], paragraph["context"]) for paragraph in paragraphs for each in paragraph["qas"]]


def _their_tokenizer() -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(find_model("minilm"))


def answer_with_ours(texts: Texts, numbers: Scores, tokenizer: BertTokenizer) -> list[dict[str, Any] | None]:
    """Return the answer to each question with its example and scores; None for questions with several windows."""
    task, windows = AnswerQuestions(), Windows(tokenizer, MAX_LENGTH, STRIDE)
    examples = [task.encode(QuestionRow("", pair), windows) for pair in texts]
    answers: list[dict[str, Any] | None] = []
    for start in range(0, len(examples), BATCH_SIZE):
        batch = examples[start : start + BATCH_SIZE]
        rows = [_numbers_for(example, place, numbers) for place, example in enumerate(batch, start)]
        for example, of_example, answer in zip(batch, rows, task.decode(batch, rows), strict=True):
            is_one = len(example.ranges) == 1
            answers.append({**answer, "rows": of_example, "example": example} if is_one else None)
    return answers


def _numbers_for(example: QuestionExample, place: int, numbers: Scores) -> NDArray[np.float32]:
    windows = example.sequences[0]
    return np.concatenate(
        [numbers[(place + number) % len(numbers)][: len(window.ids)] for number, window in enumerate(windows)]
    )


def answer_with_theirs(texts: Texts, numbers: Scores, tokenizer: Any) -> list[dict[str, Any] | None]:
    """Do the same with the usual code around Hugging Face's tokenizer."""
    features = tokenizer(
        [question.lstrip() for question, _ in texts],
        [passage for _, passage in texts],
        truncation="only_second",
        max_length=MAX_LENGTH,
        stride=STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    of_question = defaultdict(list)
    for feature, place in enumerate(features["overflow_to_sample_mapping"]):
        of_question[place].append(feature)
        kinds = features.sequence_ids(feature)
        features["offset_mapping"][feature] = [
            offsets if kind == 1 else None
            for offsets, kind in zip(features["offset_mapping"][feature], kinds, strict=True)
        ]
    answers: list[dict[str, Any] | None] = []
    for place, (_, passage) in enumerate(texts):
        candidates = []
        for number, feature in enumerate(of_question[place]):
            starts, ends = numbers[(place + number) % len(numbers)][: len(features["input_ids"][feature])].T
            offsets = features["offset_mapping"][feature]
            best_starts = np.argsort(starts)[-1 : -NUM_BEST - 1 : -1].tolist()
            best_ends = np.argsort(ends)[-1 : -NUM_BEST - 1 : -1].tolist()
            for start in best_starts:
                for end in best_ends:
                    if offsets[start] is None or offsets[end] is None:
                        continue
                    if end < start or end - start + 1 > DEFAULT_ANSWER_PIECES:
                        continue
                    candidates.append(
                        {"offsets": (offsets[start][0], offsets[end][1]), "score": starts[start] + ends[end]}
                    )
        best = sorted(candidates, key=lambda each: each["score"], reverse=True)[:NUM_BEST]
        for each in best:
            each["text"] = passage[each["offsets"][0] : each["offsets"][1]]
        scores = np.array([each["score"] for each in best])
        exponentials = np.exp(scores - scores.max()) if best else scores
        for each, probability in zip(best, exponentials / exponentials.sum(), strict=True):
            each["probability"] = probability
        is_one = len(of_question[place]) == 1 and bool(best)
        answers.append({"score": best[0]["score"], "answer": best[0]["text"]} if is_one else None)
    return answers
