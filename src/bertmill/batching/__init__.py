"""Windows over long inputs, and batches of similar length."""
