"""Thompson sampling with one linear model (Agrawal and Goyal 2013, Algorithm 1).

    draw  w ~ N(mean, alpha^2 A^-1)                         A = ridge I + sum_s x_s x_s^T
    show  argmax_a  w x(q, a)

mean and A^-1 are those of one regression on features of query and tool
(`jaxret.learners.bandits.shared`): ``[sqrt(d) q * theta_a, cosine, 1]``. The paper's ridge is 1,
and its alpha (there v) is R sqrt(9 m log(t / delta)), with which the regret is Õ(m^(3/2) sqrt(T))
where ``E[y] = w x``; a constant as small as those that serve has no such guarantee. Bits of several
right tools are what it expects.

The chance of a tool has no closed form: it is not known (NaN on the slate), and logs of this rule
can evaluate no other.

43,215 tools of width 1,536: I d + m^2 numbers in memory, as many products a round.
"""

import jax.numpy as jnp

from jaxret.learners.bandits import posterior, rows
from jaxret.learners.bandits.rows import Start
from jaxret.learners.bandits.shared import constant, means, shared_learner
from jaxret.learners.learner import Learner
from jaxret.learners.registry import preset
from jaxret.runtime.validate import require
from jaxret.types import Slate


@preset
def lints(*, alpha: float = 0.03, ridge: float = 1.0, start: Start = "document") -> Learner:
    """Thompson sampling, one linear model of query and tool for all tools.

    Args:
      alpha: width of the draws, >= 0.
      ridge: precision of the prior, > 0.
      start: 'document', the prior mean is the cosine; or 'zero'.
    """
    require("alpha", alpha, ">= 0", lambda x: x >= 0)

    def act(state, query, key):
        weights = posterior.draw(state.extra, key, alpha)
        values = means(weights, state.theta, query[None], constant)[0]
        item = jnp.argmax(rows.where_available(state, values)).astype(jnp.int32)
        return Slate(items=item[None], propensity=jnp.full(1, jnp.nan, values.dtype))

    return shared_learner("lints", base=constant, start=start, ridge=ridge, act=act)
