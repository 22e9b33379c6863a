"""Trains ToolRefiners and tests them.

    uv run python -m experiments.train_refiner dataset.path=FOLDER recipe=[refiner_tool2vec]

Recipes (`configs/methods.yaml`): refiner_tool2vec; refiner_mlc, which needs the recipe of its first
stage beside it, ``recipe=[mlc,refiner_mlc]``; and each as the paper has it,
``recipe=[refiner_tool2vec_paper] encoder=deberta_v3_xsmall``. The model goes to ``runs/models``,
where `experiments.evaluate_retrieval` finds it.
"""

from experiments.evaluate_retrieval import main

if __name__ == "__main__":
    main.cli("train_refiner")
