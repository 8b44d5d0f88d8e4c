"""rtxscale measures how well training scales over several NVIDIA GPUs, and why not better."""

__version__ = "0.1.0"
