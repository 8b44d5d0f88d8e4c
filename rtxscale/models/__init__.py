"""Shapes of the models that are trained, and the memory they need; pure."""
