"""Hypothesis for all property tests: no deadline, since a busy machine is not a defect."""

from hypothesis import settings

settings.register_profile("rtxscale", deadline=None)
settings.load_profile("rtxscale")
