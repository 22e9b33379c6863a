"""Ranks queries by any method of the bench, trained first where it has a recipe."""

from experiments.bench import Bench
from experiments.fit import cross_encoder, encoder, mlc, refiner
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import refine

FITTED = {"encoder": encoder.retriever, "mlc": mlc.retriever}
RERANKERS = {"refiner": refiner.reranker, "cross_encoder": cross_encoder.reranker}


def rank(bench: Bench, name: str, seed: int, part: str = "test") -> Ranking:
    """A method's ranking of the queries of a part (train, validation or test).

    ``NAME+first`` is the refiner NAME with the first stage's score added.
    """
    rows = getattr(bench.parts, part)
    recipe, _, extra = name.partition("+")

    def compute():
        model = bench.recipes.get(recipe, {}).get("model")
        if model in RERANKERS:
            first = refiner.candidates(bench, recipe, seed, part, rows)
            fitted = refiner.with_first if extra == "first" else RERANKERS[model]
            return refine(fitted(bench, recipe, seed), bench.texts(rows), first)
        if model in FITTED:
            return bench.search(FITTED[model](bench, name, seed), rows)
        if model is not None:
            known = ", ".join([*RERANKERS, *FITTED])
            raise ValueError(f"{name}: model must be one of {known}, got {model!r}")
        return bench.search(bench.untrained(name), rows)

    return bench.ranking(name, seed, part, rows, compute)


def seeds(bench: Bench, name: str) -> range:
    """The seeds of a method: those of its training, or one where there is nothing to train."""
    first = bench.cfg.seed
    return range(first, first + (bench.cfg.seeds if name.partition("+")[0] in bench.recipes else 1))
