"""BERT models of `transformers` that compute with bertmill's kernels and stay the objects they are."""
