"""How often a reranker uses the right tool where it is shown.

``reranked`` divides by pi, the probability of standing on the slate, so on average the right tool's
row moves by r, the probability of being used once it stands there, and not by 1: a step that is
shorter where r is small. Nobody knows r of a real reranker; with a table of its verdicts it can
be measured by drawing slates again and again.

Letters: N queries, I tools, d width, k tools shown.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxret.environments.environment import Reranker
from jaxret.rules.policies import Policy
from jaxret.types import PRNGKey


def recognition(
    reranker: Reranker,
    policy: Policy,
    logits: Float[Array, "N I"],
    labels: Int[Array, "N L"],
    key: PRNGKey,
    draws: int,
) -> Float[np.ndarray, " N"]:
    """The share of slates with a right tool on which the reranker uses one.

    Args:
      reranker: of the N queries.
      policy: draws slates.
      logits: of every query.
      labels: of every query.
      key: consumed.
      draws: of slates a query.

    Returns:
      [N]; NaN where no slate holds a right tool.
    """

    def draw(key, query):
        show, rerank = jax.random.split(key)
        slate = policy.show(show, logits[query], None)
        right = (slate.items[:, None] == labels[query][None, :]).any(axis=1)
        return right.any(), right[reranker(rerank, slate, labels[query], query)]

    def count(key, query):
        there, used = jax.vmap(draw, (0, None))(jax.random.split(key, draws), query)
        return used.sum() / there.sum()  # 0 / 0 is NaN

    queries = jnp.arange(len(labels))
    return np.asarray(jax.jit(jax.vmap(count))(jax.random.split(key, len(labels)), queries))
