"""Contents and gaps of tool documents: `python -m experiments.document_fields`."""
