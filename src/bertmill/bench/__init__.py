"""Benchmarks against the tools people use today: two sides, one run, alternating, reported as a ratio.

Absolute figures depend on the machine and its mood; the ratio of two sides measured in turns does not.
`BENCHMARKS` maps a name of `bertmill bench` to the module whose `measure` yields its rows.
"""

BENCHMARKS = {
    "tokenizer": "bertmill.bench.tokenizer",
    "vocab": "bertmill.bench.vocab",
    "corpus": "bertmill.bench.corpus",
    "model": "bertmill.bench.model",
    "instances": "bertmill.bench.instances",
    "pretrain": "bertmill.bench.pretrain",
    "finetune": "bertmill.bench.finetune",
    "predict": "bertmill.bench.predict",
    "tag": "bertmill.bench.tag",
    "answer": "bertmill.bench.answer",
}
