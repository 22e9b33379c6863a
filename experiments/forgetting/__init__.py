"""Changes of rankings while learning: `python -m experiments.forgetting`."""
