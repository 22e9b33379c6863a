"""Files, checkpoints, processes, devices, progress, tracking and validation."""
