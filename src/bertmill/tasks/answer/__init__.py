"""The task answer: extractive question answering."""
