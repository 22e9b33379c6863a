"""Trains retrievers and tests them.

    uv run python -m experiments.train_retriever dataset.path=FOLDER recipe=[mlc]

Recipes, one or several (`configs/methods.yaml`): mlc, query2query (Tool2Vec's encoder), query2desc
(the description baseline), dpr, tool_embed and the reranker tool_rank (Tool-REX), and each as the
paper has it: ``recipe=[mlc_paper] encoder=deberta_v3_base``, ``recipe=[tool_embed_paper]
encoder=qwen3_4b``. On DeskBank tool_embed raises MiniLM's R@3 from 0.370 to 0.534 in 22 steps; for
a small Qwen3 see `experiments.tiny_qwen3`. The model goes to ``runs/models``, where
`experiments.evaluate_retrieval` finds it.
"""

from experiments.evaluate_retrieval import main

if __name__ == "__main__":
    main.cli("train_retriever")
