"""One rank's program, without Ray; started by Ray Train and by torchrun alike."""
