"""The memory of a training step, counted without a GPU."""
