"""`bertmill demo`: what works today, shown on a real model and a text in two languages."""

from __future__ import annotations

import time

from bertmill.config.commands import DemoSettings
from bertmill.text.tokenizer import BertTokenizer

MODEL = "minilm"
TEXTS = [
    "The naïve café owner was unaffable.",
    "北京 is the capital of 中国.",
    "emoji 🤖 and e\u0301 in two code points",
]


def run(settings: DemoSettings) -> None:
    tokenizer = BertTokenizer.from_pretrained(MODEL)
    print(f"The tokenizer of {MODEL}: {tokenizer.vocab_size:,} pieces, model length {tokenizer.model_max_length}.")
    for text in TEXTS:
        encoding = tokenizer(text, split_special_tokens=True)[0]
        shown = zip(encoding.tokens, encoding.offsets, encoding.sequence_ids, strict=True)
        covers = [piece if sequence is None else f"{piece}‹{text[slice(*span)]}›" for piece, span, sequence in shown]
        print(f"\n{text}\n  {' '.join(covers)}\n  ids {' '.join(map(str, encoding.ids))}")
        print(f"  back to text: {tokenizer.decode(encoding.ids, skip_special_tokens=True)}")
    words = " ".join(TEXTS) + " "
    copies = words * (2_000_000 // len(words))
    started = time.perf_counter()
    num_pieces = len(tokenizer.wordpiece.ids(copies))
    seconds = time.perf_counter() - started
    print(f"\n{len(copies):,} characters of it on one core: {num_pieces:,} pieces in {seconds:.2f} s.")
    if not settings.quiet:
        print("Try your own: bertmill tokenize --model minilm --text 'Your text here'")
