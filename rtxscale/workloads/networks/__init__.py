"""The networks that are trained, and their parts: decoders, image models, the UNet."""
