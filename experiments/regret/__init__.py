"""Regret over horizons, and its bounds: `python -m experiments.regret`."""
