"""Bias and variance of estimators from one bit: `python -m experiments.variance`."""
