"""Inference with trained models: predictions, metrics and filled masks."""
