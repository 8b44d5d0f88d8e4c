"""What machines and GPUs are, as data."""
