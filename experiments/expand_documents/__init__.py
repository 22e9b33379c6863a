"""Expansion of tool documents by language models: `python -m experiments.expand_documents`."""
