"""Ranks queries by any method of the bench, trained first where it has a recipe or learns online.

What a method was allowed to see of the training part (``sees``):

    nothing   documents alone
    bits      for each query shown, whether one tool was right
    labels    the right tools

Settings of every method are chosen on the labels of the validation part.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from omegaconf import DictConfig

from experiments.parts import learners
from experiments.parts.bench import KEPT, UNTRAINED, Bench
from experiments.parts.config import plain
from experiments.parts.fit import cross_encoder, online, refiner, refit, tool_rank
from experiments.parts.fit.refiner import FITTED
from jaxret.data.split import Split as Parts
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Features, Retriever, Texts, refine
from jaxret.validate import require

RERANKERS = {
    "refiner": refiner.reranker,
    "cross_encoder": cross_encoder.reranker,
    "tool_rank": tool_rank.reranker,
}
SEES = {"bm25": "nothing", "documents": "nothing"}  # the others without a learner: labels
LEARNERS_SEE = {"none": "nothing", "full_information": "labels"}  # other estimators: bits

#: (texts, ranking of the stage before, progress=True) -> ranking
Second: TypeAlias = Callable[..., Ranking]
Read: TypeAlias = Callable[[Texts], Features]


def rank(bench: Bench, name: str, seed: int, part: str = "test") -> Ranking:
    """A method's ranking of the queries of a part (train, validation or test).

    ``NAME+first`` is the refiner NAME with the first stage's score added, ``NAME+once`` the online
    learner NAME after a stream that shows each query once.
    """
    rows, recipe = getattr(bench.parts, part), name.partition("+")[0]

    def compute():
        first = before(bench, name)
        if first is None:
            return bench.search(retriever(bench, name, seed), rows)
        second = second_stage(bench, name, seed)  # refuses its settings before a first stage trains
        if bench.recipes[recipe]["model"] == "refit":
            found = rank(bench, first, seed, part)
        else:
            found = refiner.candidates(bench, recipe, seed, part, rows)
        return second(bench.texts(rows), found)

    return bench.ranking(name, seed, part, rows, compute)


def retriever(bench: Bench, name: str, seed: int) -> Retriever:
    """A method of one stage."""
    model = bench.recipes.get(name, {}).get("model")
    if model in FITTED:
        return FITTED[model](bench, name, seed)
    if model is not None:
        known = ", ".join([*RERANKERS, *FITTED, "refit"])
        raise ValueError(f"{name}: model must be one of {known}, got {model!r}")
    if name.partition("+")[0] in (bench.cfg.get("learners") or {}):
        return online.retriever(bench, name, seed)
    return bench.untrained(name)


def before(bench: Bench, name: str) -> str | None:
    """The method whose list this one works on; None where it searches the catalogue itself."""
    settings = bench.recipes.get(name.partition("+")[0], {})
    return settings["first"] if settings.get("model") in (*RERANKERS, "refit") else None


def second_stage(bench: Bench, name: str, seed: int, read: Read | None = None) -> Second:
    """What a method does with the list of the one before.

    Args:
      bench: where it is.
      name: of a method that has one `before`.
      seed: of its training.
      read: texts -> vectors of the first retriever, where another is wanted than its own.
    """
    recipe, _, extra = name.partition("+")
    settings = bench.recipes[recipe]
    if settings["model"] == "refit":
        judged = rank(bench, settings["first"], seed, "validation")
        return refit.second_search(bench, recipe, judged, read)
    fitted = refiner.with_first if extra == "first" else RERANKERS[settings["model"]]
    return partial(refine, fitted(bench, recipe, seed))


def seeds(bench: Bench, name: str) -> range:
    """The seeds of a method: those of its training or stream, or one where there is nothing."""
    cfg, base = bench.cfg, name.partition("+")[0]
    streams = base in (cfg.get("learners") or {})
    count = cfg.seeds if base in bench.recipes else cfg.online.seeds if streams else 1
    return range(cfg.seed, cfg.seed + count)


def sees(cfg: DictConfig, name: str) -> str:
    """What a method learns from: nothing, bits or labels."""
    base = name.partition("+")[0]
    if base in (cfg.get("learners") or {}):
        return LEARNERS_SEE.get(cfg.learners[base].estimator.name, "bits")
    return SEES.get(base, "labels")


def check(cfg: DictConfig, names: Sequence[str]) -> None:
    """Refuses methods that are not there or cannot be, before anything is loaded or trained."""
    cuts, recipes = list(cfg.cuts), plain(cfg.recipes)
    require("part", cfg.part, f"one of {', '.join(Parts._fields)}", Parts._fields.__contains__)
    rivals = plain(cfg.learners) if cfg.get("learners") else {}
    in_range = bool(cuts) and all(1 <= cut <= KEPT for cut in cuts)
    require("cuts", cuts, f"one or more numbers in 1 .. {KEPT}", lambda _: in_range)
    known = [*UNTRAINED, *recipes, *rivals]
    for name in names:
        base, plus, extra = name.partition("+")
        if base not in known:
            raise ValueError(f"unknown method {name!r}; known: {', '.join(known)}")
        recipe = recipes.get(base, {})
        model = recipe.get("model")
        if plus and extra != ("once" if base in rivals else "first" if model == "refiner" else ""):
            raise ValueError(f"method {name!r}: '+first' is for refiners, '+once' for learners")
        if base in rivals:
            learners.build(base, rivals[base])
            for setting in ("exposures", "seeds", "k", "chunk"):
                require(f"online.{setting}", cfg.online[setting], ">= 1", lambda x: x >= 1)
        if model in RERANKERS:
            given, allowed = recipe["candidates"], f">= {max(cuts)}, the largest of cuts"
            require(f"recipes.{base}.candidates", given, allowed, lambda n: n >= max(cuts))
            check_below(recipes, base)
        if model == "refit":
            reranker = recipes.get(recipe["first"], {})
            if reranker.get("model") not in RERANKERS or reranker["first"] not in UNTRAINED[1:]:
                raise ValueError(
                    f"recipes.{base}.first must be a recipe of a reranker on one of "
                    f"{', '.join(UNTRAINED[1:])}, got {recipe['first']!r}"
                )


def check_below(recipes: Mapping[str, Mapping[str, Any]], name: str) -> None:
    """Refuses the recipe of a reranker whose first stage is not there."""
    known = [*UNTRAINED, *(one for one in recipes if recipes[one]["model"] in FITTED)]
    first, allowed = recipes[name]["first"], f"one of {', '.join(known)}"
    require(f"recipes.{name}.first", first, allowed, known.__contains__)
