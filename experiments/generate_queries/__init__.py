"""Queries for a catalogue, written by language models: `python -m experiments.generate_queries`."""
