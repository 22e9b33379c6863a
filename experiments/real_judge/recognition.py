"""The probability that a reranker uses the right tool if it is shown.

``reranked`` divides by pi, the probability that a tool is on the slate. On average the row of the
right tool therefore moves by r, the probability that the tool is used once it is on the slate, and
not by 1: steps are shorter where r is small. In a deployment r is unknown; with a table of the
reranker's verdicts it can be measured by drawing many slates.

Letters: N queries, I tools, d width, k tools shown.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxret.environments.environment import SlateReranker
from jaxret.rules.policies import Policy
from jaxret.types import PRNGKey


def recognition(
    reranker: SlateReranker,
    policy: Policy,
    logits: Float[Array, "N I"],
    labels: Int[Array, "N L"],
    key: PRNGKey,
    draws: int,
) -> Float[np.ndarray, " N"]:
    """Computes the share of slates with a right tool on which the reranker uses a right one.

    Args:
      reranker: reranker of the N queries.
      policy: draws slates of k tools.
      logits: [N, I].
      labels: [N, L], -1 pads.
      key: consumed.
      draws: slates per query.

    Returns:
      [N]; NaN where no slate has a right tool.
    """

    def draw(key, query):
        show, rerank = jax.random.split(key)
        slate = policy.show(show, logits[query], None)
        right = (slate.items[:, None] == labels[query][None, :]).any(axis=1)
        return right.any(), right[reranker(rerank, slate, labels[query], query)]

    def count(key, query):
        present, used = jax.vmap(draw, (0, None))(jax.random.split(key, draws), query)
        return used.sum() / present.sum()  # 0 / 0 is NaN

    queries = jnp.arange(len(labels))
    return np.asarray(jax.jit(jax.vmap(count))(jax.random.split(key, len(labels)), queries))
