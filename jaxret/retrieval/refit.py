"""ReFIT: the query itself is corrected by what a reranker says about its candidates.

With the candidates d_1 .. d_K of the first retrieval, p = softmax(q . d / tau) and the reranker's
r = softmax(scores / reranker_tau), the query vector descends

    KL(r || p)          with gradient          sum_i (p_i - r_i) d_i / tau

and the catalogue is searched once more with what it has become. Nothing else moves, so the second
list may hold tools that the first one missed:

    first = search(inner_product("first", theta), queries, k=100)
    judged = refine(reranker, texts, first)
    better = refit(queries, theta, judged.items, judged.scores)
    second = search(inner_product("second", theta), better, k=100)

(Gangi Reddy et al. 2023.) ORAG compares with it and gives no settings, so the defaults are ours: a
tau for unit vectors, and tau^2 for the learning rate, which is the largest for which the divergence
surely falls: with unit candidates its curvature is at most 1 / tau^2.

Letters: N queries, I tools, K candidates, d width.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxret.validate import require

_BATCH = 64  # queries at a time: 64 x K x d numbers


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
    """Query vectors that agree with the reranker.

    Args:
      queries: that found the candidates.
      theta: tool embeddings.
      items: candidates, -1 pads; a query without any stays as it is.
      reranker_scores: of the candidates, on the scale of logits.
      steps: of gradient descent.
      learning_rate: size of a step.
      tau: temperature of ``q . theta``.
      reranker_tau: temperature of the scores.
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
    """Zero where nothing is present, even everywhere."""
    logits = jnp.where(present, logits, -jnp.inf)
    top = jnp.where(present.any(), logits.max(), 0)
    weights = jnp.exp(logits - top)
    return weights / jnp.maximum(weights.sum(), 1)  # the largest weight is 1
