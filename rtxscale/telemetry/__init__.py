"""What the machine did: probes, sampler and facts."""
