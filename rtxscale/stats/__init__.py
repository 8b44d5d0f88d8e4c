"""Intervals, comparisons and steady-state detection; pure, with sources."""
