"""Weights and settings ↔ disk: our folders, other people's formats, and where a model's name leads."""
