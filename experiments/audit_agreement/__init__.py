"""Agreement of judges of tool documents with a reader: `python -m experiments.audit_agreement`."""
