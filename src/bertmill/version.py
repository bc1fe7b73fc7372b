"""The version, in its own file, so that reading it imports nothing."""

__version__ = "0.1.0"
