"""NCCL's settings and log, as pure functions of its version."""
