"""Neural-linear: Thompson draws of a Bayesian linear regression on what a network says.

    s2 ~ inverse gamma,  w ~ N(mean, s2 A^-1);   show  argmax_a  w x(q, a)
    x(q, a) = [q, sqrt(d) q * theta_a, cosine]

(Snoek et al. 2015; as a bandit Riquelme, Tucker and Snoek 2018.) Mean, covariance and noise are
conjugate, so that the width of the draws is learnt and not told. Two things differ from the paper:
the network is the encoder, which is not trained any further, and there is one regression for all
tools in place of one a tool, since most tools are shown too seldom for one of their own. The
paper's noise begins at shape = rate = 6; here its mean is 1/4 at the start, the largest variance of
a bit. There is no guarantee. Bits of several right tools are what it expects.

The chance of a tool is not known (NaN on the slate), as with every Thompson draw of a linear model.

43,215 tools of width 1,536: I d + (2 d)^2 numbers in memory, as many products a round.
"""

import jax
import jax.numpy as jnp

from jaxret.learners.bandits import posterior, rows
from jaxret.learners.bandits.rows import Start
from jaxret.learners.bandits.shared import itself, means, shared_learner
from jaxret.learners.learner import Learner
from jaxret.learners.registry import preset
from jaxret.runtime.validate import require
from jaxret.types import Slate


@preset
def neural_linear(
    *, ridge: float = 10.0, shape: float = 6.0, rate: float = 1.25, start: Start = "document"
) -> Learner:
    """Neural-linear: Bayesian regression on the encoder's vectors, Thompson draws.

    Args:
      ridge: precision of the prior, in units of the noise, > 0.
      shape: of the noise before the first bit, > 1.
      rate: of it, > 0; rate / (shape - 1) is its mean.
      start: 'document', the prior mean is the cosine; or 'zero'.
    """
    require("shape", shape, "> 1", lambda x: x > 1)
    require("rate", rate, "> 0", lambda x: x > 0)

    def act(state, query, key):
        noise, key = jax.random.split(key)
        weights = posterior.draw(state.extra, key, posterior.draw_noise(state.extra, noise))
        values = means(weights, state.theta, query[None], itself)[0]
        item = jnp.argmax(rows.where_available(state, values)).astype(jnp.int32)
        return Slate(items=item[None], propensity=jnp.full(1, jnp.nan, values.dtype))

    return shared_learner(
        "neural_linear",
        base=itself,
        start=start,
        ridge=ridge,
        act=act,
        shape=shape,
        rate=rate,
    )
