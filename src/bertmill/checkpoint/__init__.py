"""Weights and settings on disk: model folders, training checkpoints, and the folders that model names refer to."""
