"""How rankings change while learning: `python -m experiments.forgetting`."""
