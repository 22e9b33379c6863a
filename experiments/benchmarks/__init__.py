"""How fast: `python -m experiments.benchmarks.simulate`, `.encode`, `.training`."""
