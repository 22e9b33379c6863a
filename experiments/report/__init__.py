"""The papers' tables and figures beside ours: `python -m experiments.report`."""
