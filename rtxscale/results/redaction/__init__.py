"""What is private in texts and tables, found by shapes, names and secret keys, and replaced by words."""
