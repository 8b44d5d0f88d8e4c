"""What the numbers mean: efficiency, effects, intervals."""
