"""Initial embeddings of learners: `python -m experiments.warm_start`."""
