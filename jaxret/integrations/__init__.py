"""Agent frameworks that search with an index, each an extra: `jaxret.integrations.fastmcp`."""
