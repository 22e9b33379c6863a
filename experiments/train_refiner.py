"""Trains ToolRefiners and tests them.

    uv run python -m experiments.train_refiner dataset.path=FOLDER recipe=[refiner_tool2vec]

Recipes (`configs/recipe/`): refiner_tool2vec; refiner_mlc, which needs the recipe of its first
stage beside it, ``recipe=[mlc,refiner_mlc]``; and each as the paper has it,
``recipe=[refiner_tool2vec_paper] encoder=deberta_v3_xsmall``. The model goes to ``runs/models``,
where `experiments.evaluate_retrieval` finds it.
"""

import hydra
from omegaconf import DictConfig

from experiments import evaluate_retrieval
from experiments.parts.config import CONFIGS


@hydra.main(config_path=CONFIGS, config_name="train_refiner", version_base="1.3")
def cli(cfg: DictConfig) -> dict[str, float]:
    return evaluate_retrieval.main(cfg)


if __name__ == "__main__":
    cli()
