"""The task answer: the part of a passage that answers a question."""
