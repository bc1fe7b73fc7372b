"""Parallel work in worker processes."""
