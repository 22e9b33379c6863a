"""Bias and variance of what one bit says: `python -m experiments.variance`."""
