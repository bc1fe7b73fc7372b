"""How weights are learnt: one loop for pre-training and fine-tuning, its schedule, optimizer, state and ranks."""
