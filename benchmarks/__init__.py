"""Benchmarks against other tools: both sides alternate in one run, and the result is their ratio.

Absolute figures depend on the machine and its load; the ratio of two alternating sides hardly does. `BENCHMARKS` maps
each name to the packages it measures bertmill against. The benchmark is the module of that name, whose
`measure(data, rounds)` yields rows.
"""

BENCHMARKS: dict[str, tuple[str, ...]] = {
    "tokenizer": ("tokenizers",),
    "vocab": ("tokenizers",),
    "corpus": ("tokenizers",),
    "model": ("transformers",),
    "instances": (),
    "pretrain": (),
    "finetune": ("transformers", "accelerate"),
    "predict": ("transformers", "onnxscript", "onnxruntime", "openvino"),
    "tag": ("transformers",),
    "answer": ("transformers",),
}
