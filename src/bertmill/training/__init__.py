"""Training: one loop for pre-training and fine-tuning, with its schedule, optimizer, state and ranks."""
