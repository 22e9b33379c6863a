"""Several tools are shown, and one is clicked: right ones rather than wrong ones, high before low.

    Environment(reranker=position_biased(bias=1.0, lure=0.2))

The position-based model (Richardson et al. 2007; Craswell et al. 2008) has a click on place j with
probability `looked at` times `attractive`. Here one tool a round is clicked, in proportion to it:

    P(j) = v_j / (sum of v),      v_j = j^-bias (1 where the tool is right, else lure),   j = 1 .. k

So a right tool that stands low is clicked less often than it deserves, and a click is no success by
itself. Nobody knows these probabilities: with a click comes the propensity with which the tool came
onto the slate, and no more.

Letters: k items shown, L labels.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxret.runtime.validate import require
from jaxret.types import PRNGKey, Slate


def position_biased(*, bias: float = 1.0, lure: float = 0.2):
    """A user who clicks, as a `jaxret.environments.environment.Reranker`.

    Args:
      bias: >= 0; 0 looks at all places alike.
      lure: how much a wrong tool attracts, beside a right one's 1; in (0, 1].
    """
    require("bias", bias, ">= 0", lambda x: x >= 0)
    require("lure", lure, "in (0, 1]", lambda x: 0 < x <= 1)

    def click(key: PRNGKey, slate: Slate, labels: Int[Array, " L"], query: Int[Array, ""]):
        del query
        return jax.random.categorical(key, jnp.log(click_chances(slate, labels, bias, lure)))

    return click


def click_chances(
    slate: Slate, labels: Int[Array, " L"], bias: float, lure: float
) -> Float[Array, " k"]:
    """The probability that each place is the one that is clicked.

    Returns:
      [k], sum 1.
    """
    right = (slate.items[:, None] == labels[None, :]).any(axis=1)
    place = jnp.arange(1, len(slate.items) + 1, dtype=slate.propensity.dtype)
    weights = place**-bias * jnp.where(right, 1.0, lure)
    return weights / weights.sum()
