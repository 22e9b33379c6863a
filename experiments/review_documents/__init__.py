"""Human review of tool profiles: `python -m experiments.review_documents`."""
