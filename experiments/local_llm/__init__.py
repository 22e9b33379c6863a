"""A language model on this machine, behind the endpoint that every experiment knows how to ask."""
