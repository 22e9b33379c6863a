"""Tool documents: read, compared, audited, expanded (Tool-REX)."""
