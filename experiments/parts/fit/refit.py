"""ReFIT: a recipe with ``model: refit``. The scores of a cross-encoder for its candidates correct
the query, which searches the documents once more (ORAG Table 3)."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from experiments.parts.bench import METRICS, Bench
from jaxret.retrieval import refit
from jaxret.retrieval.dense import inner_product
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Features, Texts, search

_corrected = jax.jit(refit.refit)


def second_search(
    bench: Bench, name: str, judged: Ranking, read: Callable[[Texts], Features] | None = None
) -> partial[Ranking]:
    """``(texts, ranking, progress=True) -> ranking``, from what the reranker says to the last list.

    Args:
      bench: with the recipe, and that of its reranker.
      name: of the recipe.
      judged: what the reranker says of the validation queries: they choose the number of steps.
      read: texts -> vectors, of the first retriever by default.
    """
    settings, rows = bench.recipes[name], bench.parts.validation
    first = bench.untrained(bench.recipes[settings["first"]]["first"])
    theta = jnp.asarray(first.params)
    catalogue = inner_product(name, theta)
    scales = {key: settings[key] for key in ("learning_rate", "tau", "reranker_tau")}

    def again(texts: Texts, ranking: Ranking, *, steps: int, progress: bool = True) -> Ranking:
        queries = _corrected((read or first.read)(texts), theta, *ranking, steps=steps, **scales)
        order = bench.tie_order
        return search(
            catalogue, np.asarray(queries), bench.kept, tie_order=order, progress=progress
        )

    def score(steps):
        found = again(bench.texts(rows), judged, steps=steps, progress=False)
        return bench.means(found, rows)[METRICS[0]]

    best = max(settings["steps"], key=score)
    print(f"{name}: {best} steps")
    return partial(again, steps=best)
