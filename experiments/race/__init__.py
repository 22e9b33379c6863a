"""A rule of one's own beside the presets: `python -m experiments.race`."""
