"""What a worker runs, behind one protocol."""
