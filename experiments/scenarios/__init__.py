"""Learners in changing environments, and the cost of a guard: `python -m experiments.scenarios`."""
