"""Questions and their answers: each file is one experiment, `uv run python -m experiments.NAME`."""
