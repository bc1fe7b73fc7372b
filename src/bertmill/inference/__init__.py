"""Inference with trained models: answers, metrics and filled masks."""
