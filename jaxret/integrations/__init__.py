"""Agent frameworks that search with an index, each an extra: `fastmcp` and `langchain`."""
