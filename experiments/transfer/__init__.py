"""Projections, and what transfers: `python -m experiments.transfer`."""
