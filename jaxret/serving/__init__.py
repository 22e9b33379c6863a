"""A live index: search, use a tool, report whether it worked."""
