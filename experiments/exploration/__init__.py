"""Temperature and exploration over a grid: `python -m experiments.exploration`."""
