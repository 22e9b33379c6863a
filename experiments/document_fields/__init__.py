"""What tool documents hold and leave out: `python -m experiments.document_fields`."""
