"""Ablation of the fields of a tool profile: `python -m experiments.document_ablation`."""
