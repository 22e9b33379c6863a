"""ReFIT: query vectors corrected by a reranker's scores, and a second search.

With the candidates d_1 .. d_K of the first retrieval, p = softmax(q . d / tau) and the reranker's
r = softmax(scores / reranker_tau), the query vector descends

    KL(r || p)          with gradient          sum_i (p_i - r_i) d_i / tau

and the catalogue is searched again with the new vector. Tools do not move, so the second list may
contain tools that the first one missed:

    judged = refine(reranker, validation.texts, search(first, validation.texts, k=10))
    second = fit(train, Config(), validation=validation, judged=judged)
    better = second(texts, refine(reranker, texts, search(first, texts, k=10)))

(Gangi Reddy et al. 2023.) ORAG compares with ReFIT and gives no settings, so the defaults are ours:
a tau for unit vectors, and tau^2 for the learning rate, the largest with which the divergence is
certain to fall, since with unit candidates its curvature is at most 1 / tau^2.

Letters: N queries, I tools, K candidates, d width.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxret.methods.common import KEPT, scores
from jaxret.retrieval.dense import dense, inner_product
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Features, Texts, search
from jaxret.runtime.validate import require
from jaxret.task import Task

_BATCH = 64  # queries at a time: 64 x K x d numbers


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the gradient descent on a query.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    steps: tuple[int, ...] = (10, 30, 100, 300)  # to try; the best on validation queries is taken
    learning_rate: float = 2.5e-3
    tau: float = 0.05  # temperature of the inner products
    reranker_tau: float = 1.0  # and of the reranker's logits

    def __post_init__(self):
        allowed = "one or more numbers >= 0"
        require("steps", self.steps, allowed, lambda x: len(x) > 0 and min(x) >= 0)
        for field in ("learning_rate", "tau", "reranker_tau"):
            require(field, getattr(self, field), "> 0", lambda x: x > 0)


@dataclass(frozen=True, kw_only=True)
class SecondSearch:
    """``second(texts, judged) -> ranking`` of the whole catalogue, from a reranker's lists.

    It is not a `Reranker`, which only reorders candidates, nor a `Retriever`, which takes no list.
    """

    name: str
    theta: Float[Array, "I d"]
    read: Callable[[Texts], Features]  # texts -> vectors
    steps: int
    config: Config

    def __call__(self, texts: Texts, judged: Ranking, *, progress: bool = True) -> Ranking:
        """Search again with corrected queries.

        Args:
          texts: the N queries.
          judged: the reranker's lists [N, K].
          progress: whether to show a bar.
        """
        queries = _corrected(
            self.read(texts),
            self.theta,
            *judged,
            steps=self.steps,
            learning_rate=self.config.learning_rate,
            tau=self.config.tau,
            reranker_tau=self.config.reranker_tau,
        )
        k = min(KEPT, len(self.theta))
        catalogue = inner_product(self.name, self.theta)
        return search(catalogue, np.asarray(queries), k, progress=progress)


def fit(
    task: Task,
    config: Config,
    *,
    validation: Task,
    judged: Ranking,
    theta: Float[np.ndarray, "I d"] | None = None,
    name: str = "refit",
) -> SecondSearch:
    """Choose the number of steps. Nothing else is trained, so there is nothing to save.

    Args:
      task: with the catalogue that is searched.
      config: the numbers of steps to try, and the scales.
      validation: the queries on which the number is chosen, by recall at the smallest of
        `jaxret.methods.common.CUTS`.
      judged: the reranker's lists of the validation queries.
      theta: tool embeddings of the first retrieval [I, d]; None: the task's.
      name: shown in the progress bar and in errors.
    """
    rows = jnp.asarray(task.theta if theta is None else theta)

    def of(steps: int, read: Callable[[Texts], Features]) -> SecondSearch:
        return SecondSearch(name=name, theta=rows, read=read, steps=steps, config=config)

    def score(steps):
        found = of(steps, np.asarray)(validation.queries, judged, progress=False)
        return next(iter(scores(found, validation).values()))

    return of(max(config.steps, key=score), dense(name, rows, task.encoder).read)


def refit(
    queries: Float[Array, "N d"],
    theta: Float[Array, "I d"],
    items: Int[Array, "N K"],
    reranker_scores: Float[Array, "N K"],
    *,
    steps: int = 100,
    learning_rate: float = 2.5e-3,
    tau: float = 0.05,
    reranker_tau: float = 1.0,
) -> Float[Array, "N d"]:
    """Move query vectors towards agreement with a reranker.

    Args:
      queries: vectors that found the candidates [N, d].
      theta: tool embeddings [I, d].
      items: candidates [N, K], padded with -1; a query without any stays as it is.
      reranker_scores: reranker scores of the candidates [N, K], as logits.
      steps: steps of gradient descent.
      learning_rate: size of a step.
      tau: temperature of ``q . theta``.
      reranker_tau: temperature of the scores.

    Returns:
      the moved queries [N, d], not scaled to any length.

    Raises:
      ValueError: for a negative number of steps, or another setting that is not above 0.
    """
    require("steps", steps, ">= 0", lambda x: x >= 0)
    positive = {"learning_rate": learning_rate, "tau": tau, "reranker_tau": reranker_tau}
    for name, value in positive.items():
        require(name, value, "> 0", lambda x: x > 0)
    theta = jnp.asarray(theta)

    def one(query, candidates, scores):
        present, documents = candidates >= 0, theta[candidates]
        wanted = _softmax(scores / reranker_tau, present)

        def step(_, q):
            p = _softmax(documents @ q / tau, present)
            return q - learning_rate / tau * ((p - wanted) @ documents)

        return jax.lax.fori_loop(0, steps, step, query)

    rows = (jnp.asarray(queries), jnp.asarray(items), jnp.asarray(reranker_scores))
    return jax.lax.map(lambda row: one(*row), rows, batch_size=_BATCH)


def _softmax(logits, present):
    """Compute a softmax over the present entries; absent ones are 0, also if all are absent."""
    logits = jnp.where(present, logits, -jnp.inf)
    top = jnp.where(present.any(), logits.max(), 0)
    weights = jnp.exp(logits - top)
    return weights / jnp.maximum(weights.sum(), 1)  # the largest weight is 1


_corrected = jax.jit(refit)
