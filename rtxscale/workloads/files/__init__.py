"""What workloads name on disk, looked at without torch: data, latents, models and scripts of one's own."""
