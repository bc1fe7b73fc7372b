"""Text as pieces on disk, and the instances that pre-training makes of it."""
