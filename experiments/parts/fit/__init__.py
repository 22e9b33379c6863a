"""From a recipe in the config to a trained retriever or reranker, trained once and found again."""
