"""Analysis of retrieval failures: `python -m experiments.analyse_retrieval`."""
