"""Experiments: each file answers one question, `uv run python -m experiments.NAME`."""
