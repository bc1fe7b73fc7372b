"""Text stored as pieces, and the pre-training instances made from it."""
