"""Your own rule compared with the presets: `python -m experiments.race`."""
