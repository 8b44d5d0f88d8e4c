"""What the machine did: probes, sampling, windows and hardware facts."""
