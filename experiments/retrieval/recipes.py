"""The config group ``recipe``: every method's Config with the changes of `configs/methods.yaml`.

    recipe=[mlc,refiner_mlc] recipes.mlc.epochs=6

Importing this file registers the recipes.
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

#: Retrievers and rerankers, by the ``model`` of a recipe.
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
    """Make the Config of a recipe."""
    require_one_of(f"recipes.{name}.model", recipe["model"], METHODS)
    kind = METHODS[recipe["model"]].Config
    known = {field.name for field in fields(kind)}
    try:
        return from_plain(kind, {key: recipe[key] for key in recipe if key in known})
    except ValueError as error:
        raise ValueError(f"recipes.{name}: {error}") from error


def _key(name: str) -> str:
    """Return the config key of a recipe; NAME_paper and NAME_tiny replace NAME."""
    return f"recipes.{re.sub('_(paper|tiny)$', '', name)}"


RECIPES = {
    name: {**asdict(METHODS[recipe["model"]].Config()), **recipe}
    for name, recipe in table("methods").items()
}
register("recipe", RECIPES, _key)
