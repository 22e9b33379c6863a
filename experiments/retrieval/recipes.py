"""The group ``recipe`` of the configs: every method's Config, as `configs/methods.yaml` changes it.

    recipe=[mlc,refiner_mlc] recipes.mlc.epochs=6

To import this file is to register them.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import partial
from types import SimpleNamespace
from typing import Any

from experiments.common.config import register, table
from jaxret.methods import cross_encoder, encoder_tuning, mlc, refiner, refit, tool_rank
from jaxret.training.config import from_plain, require_one_of

#: What searches the catalogue, what sorts a list; by a recipe's ``model``.
RETRIEVERS = {
    **{
        name: SimpleNamespace(Config=kind, fit=partial(encoder_tuning.fit, objective=name))
        for name, kind in encoder_tuning.CONFIGS.items()
    },
    "mlc": mlc,
}
RERANKERS = {"refiner": refiner, "cross_encoder": cross_encoder, "tool_rank": tool_rank}
METHODS: dict[str, Any] = {**RERANKERS, **RETRIEVERS, "refit": refit}


def config_of(name: str, recipe: Mapping[str, Any]) -> Any:
    """The Config of a recipe.

    Raises:
      ValueError: naming the recipe, the setting and what it may be.
    """
    require_one_of(f"recipes.{name}.model", recipe["model"], METHODS)
    kind = METHODS[recipe["model"]].Config
    known = {field.name for field in fields(kind)}
    try:
        return from_plain(kind, {key: recipe[key] for key in recipe if key in known})
    except ValueError as error:
        raise ValueError(f"recipes.{name}: {error}") from error


def _key(name: str) -> str:
    """Where the settings of a recipe go: NAME_paper and NAME_tiny take the place of NAME."""
    return f"recipes.{re.sub('_(paper|tiny)$', '', name)}"


RECIPES = {
    name: {**asdict(METHODS[recipe["model"]].Config()), **recipe}
    for name, recipe in table("methods").items()
}
register("recipe", RECIPES, _key)
