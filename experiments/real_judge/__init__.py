"""Learning from a real judge, a language model that decides whether a tool fits a query."""
