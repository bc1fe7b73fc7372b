"""Benchmarks against other tools: both tools alternate in one run, and the result is their ratio.

Absolute numbers depend on the machine and its load; ratios of alternating runs are much more stable. `BENCHMARKS` maps
the name of each benchmark to the packages that it needs. The module of that name has a function `measure(data, rounds)`
that yields rows.
"""

BENCHMARKS: dict[str, tuple[str, ...]] = {
    "tokenizer": ("tokenizers",),
    "vocab": ("tokenizers",),
    "corpus": ("tokenizers",),
    "model": ("transformers",),
    "accelerate": ("transformers",),
    "instances": (),
    "pretrain": (),
    "finetune": ("transformers", "accelerate"),
    "predict": ("transformers", "onnxscript", "onnxruntime", "openvino"),
    "tag": ("transformers",),
    "answer": ("transformers",),
}
