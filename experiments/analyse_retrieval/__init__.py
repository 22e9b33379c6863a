"""Where retrieval fails: `python -m experiments.analyse_retrieval`."""
