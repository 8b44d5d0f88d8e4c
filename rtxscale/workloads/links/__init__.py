"""Workloads that only communicate: collectives, and the gradient buckets of a model."""
