"""Trains retrievers and tests them.

    uv run python -m experiments.train_retriever dataset.path=FOLDER recipe=[mlc]

Recipes, one or several (`configs/recipe/`): mlc, query2query (Tool2Vec's encoder), query2desc
(the description baseline), dpr, tool_embed and the reranker tool_rank (Tool-REX), and each as the
paper has it: ``recipe=[mlc_paper] encoder=deberta_v3_base``, ``recipe=[tool_embed_paper]
encoder=qwen3_4b``. On DeskBank tool_embed raises MiniLM's R@3 from 0.370 to 0.534 in 22 steps; for
a small Qwen3 see `experiments.tiny_qwen3`. The model goes to ``runs/models``, where
`experiments.evaluate_retrieval` finds it.
"""

import hydra
from omegaconf import DictConfig

from experiments import evaluate_retrieval
from experiments.parts.config import CONFIGS


@hydra.main(config_path=CONFIGS, config_name="train_retriever", version_base="1.3")
def cli(cfg: DictConfig) -> dict[str, float]:
    return evaluate_retrieval.main(cfg)


if __name__ == "__main__":
    cli()
