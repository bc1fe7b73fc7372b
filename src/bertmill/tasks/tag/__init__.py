"""The task tag: one tag for every word."""
