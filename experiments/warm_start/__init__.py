"""Where a learner starts: `python -m experiments.warm_start`."""
