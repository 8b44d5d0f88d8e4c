"""What tools say about a machine's GPUs and the links between them, read as data; looks at no machine itself."""
