"""From a sweep and an inventory to sessions of trials in order."""
