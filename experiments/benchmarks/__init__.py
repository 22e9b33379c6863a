"""Benchmarks: `python -m experiments.benchmarks.simulate`, `.encode`, `.training`, `.gpu`, .."""
