"""What all trainings share: precision, updates, spreading over ranks, compilation, evaluation."""
