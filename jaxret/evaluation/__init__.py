"""Evaluation of rankings and runs: metrics, comparisons, statistics, figures."""
