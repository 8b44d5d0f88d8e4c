"""What models are trained on: data sets, and loaders that bring them to the device."""
