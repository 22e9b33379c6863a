"""Learning from a real judge: a language model that says whether a tool fits a task."""
