"""A language model on this machine, behind an OpenAI-compatible endpoint."""
