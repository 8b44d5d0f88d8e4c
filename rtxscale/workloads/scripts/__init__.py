"""Training code of somebody else, driven step by step."""
