"""What happens to learners in life, and what a guard costs: `python -m experiments.scenarios`."""
