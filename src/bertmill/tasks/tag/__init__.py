"""The task tag: a tag for every word."""
