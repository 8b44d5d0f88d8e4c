"""What other programs measured, as rows of our tables."""
