"""ToolRefiner: the reranker of a recipe with ``model: refiner``, on the first stage it names.

Candidates of the training queries come from the first stage too. Tool2Vec's means would then hold
the query itself, as a candidate's score and in the vector that the refiner sees. So each query is
left out of its own tools' means (``leave_out``). An MLC is not trained again without each query:
its training candidates are better than those of new queries.
"""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Float

from experiments.parts.bench import METRICS, Bench, Rows
from experiments.parts.fit import encoder, mlc, store
from jaxret.nn.backbone import shallow
from jaxret.nn.layers import Compute
from jaxret.nn.refiner import refiner
from jaxret.retrieval import refiner as retrieval
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Reranker, Retriever, refine, search
from jaxret.retrieval.tool2vec import left_out, own_left_out
from jaxret.training import recipes

TOOLS = ("tool2vec", "documents")
#: What a recipe trains to search the catalogue, by its ``model``: a first stage as good as any.
FITTED = {"encoder": encoder.retriever, "mlc": mlc.retriever}


def reranker(bench: Bench, name: str, seed: int) -> Reranker:
    """The trained refiner."""
    settings, encoder, train = bench.recipes[name], bench.task.encoder, bench.parts.train
    tools, limit = vectors(bench, name), settings["limit"]
    backbone, weights = encoder.backbone, encoder.params
    if settings["layers"] is not None:
        backbone, weights = shallow(backbone, weights, settings["layers"])
    network = refiner(
        backbone,
        tools.shape[1],
        places=settings["places"],
        projection=settings["projection"],
        compute=Compute(
            dropout=settings["dropout"], dtype=settings["dtype"], remat=settings["remat"]
        ),
    )

    def recipe():
        first = candidates(bench, name, seed, "train", train)
        return recipes.refinement(
            network,
            encoder.tokens(bench.texts(train), kind="query", limit=limit),
            bench.trained_on[1],
            first.items,
            tools,
            own=_own(bench, settings),
            prior=settings["prior"] * first.scores if settings["prior"] else None,
            inject_missing=settings["inject_missing"],
            size=settings["size"],
            seed=seed,
        )

    params = retrieval.start(network, weights, jax.random.key(seed))
    untrained = retrieval.tool_refiner(network, params, encoder, tools, limit=limit, name=name)
    untrained = untrained._replace(prior=settings["prior"])

    def validate(params):
        rows = bench.parts.validation
        first = candidates(bench, name, seed, "validation", rows)
        trained = untrained._replace(params=(params, untrained.params[1]))
        return bench.means(refine(trained, bench.texts(rows), first, progress=False), rows)

    model = store.fitted(
        bench.cfg,
        bench.run,
        name,
        seed,
        settings={**_deciding(settings), "under": bench.recipes.get(settings["first"])},
        start=lambda: params,
        recipe=recipe,
        validate=validate,
    )
    return untrained._replace(params=(model.params, untrained.params[1]))


def with_first(bench: Bench, name: str, seed: int) -> Reranker:
    """The trained refiner, the first stage's score added with the weight that validates best.

    Ours: the paper lets the second stage forget what the first one thought.
    """
    trained, rows = reranker(bench, name, seed), bench.parts.validation
    first, texts = candidates(bench, name, seed, "validation", rows), bench.texts(rows)

    def score(weight):
        found = refine(trained._replace(prior=weight), texts, first, progress=False)
        return bench.means(found, rows)[METRICS[0]]

    best = max(bench.recipes[name]["first_weights"], key=score)
    print(f"{name}: weight {best} of the first stage's score")
    return trained._replace(prior=best)


def candidates(bench: Bench, name: str, seed: int, part: str, rows: Rows) -> Ranking:
    """What the refiner is given: the first stage's best, N a query."""
    settings = bench.recipes[name]
    first, kept = settings["first"], settings["candidates"]
    without = settings["leave_out"] and first == "tool2vec" and part == "train"

    def compute():
        if without:
            own = left_out(*bench.trained_on, bench.task.theta_1)
            return search(
                own, np.arange(len(rows))[:, None], bench.kept, tie_order=bench.task.tie_order
            )
        return bench.search(first_stage(bench, first, seed), rows)

    found = bench.ranking(first, seed, f"{part}-left-out" if without else part, rows, compute)
    return Ranking(items=found.items[:, :kept], scores=found.scores[:, :kept])


def _own(bench: Bench, settings: dict) -> Callable[[Rows], Float[np.ndarray, "B L d"]] | None:
    """How a training query sees its own tools, where it is part of them."""
    if not (settings["leave_out"] and settings["tools"] == "tool2vec"):
        return None
    return own_left_out(*bench.trained_on, bench.task.theta_1)


def first_stage(bench: Bench, name: str, seed: int) -> Retriever:
    """An untrained method, or one of `FITTED`, trained if it was not yet."""
    model = bench.recipes.get(name, {}).get("model")
    return FITTED[model](bench, name, seed) if model in FITTED else bench.untrained(name)


def _deciding(settings: dict) -> dict:
    """The settings that decide the parameters."""
    return {key: value for key, value in settings.items() if key != "first_weights"}


def vectors(bench: Bench, name: str) -> Float[np.ndarray, "I d"]:
    """The tools as the refiner sees them."""
    kind = bench.recipes[name]["tools"]
    if kind not in TOOLS:
        raise ValueError(f"{name}: tools must be one of {TOOLS}, got {kind!r}")
    return bench.usage() if kind == "tool2vec" else bench.task.theta_1
