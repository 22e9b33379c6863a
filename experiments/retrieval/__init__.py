"""Retrieval methods by name, on one data set, for several experiments."""
