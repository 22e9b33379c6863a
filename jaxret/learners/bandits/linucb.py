"""LinUCB with disjoint models (Li, Chu, Langford and Schapire 2010, Algorithm 1).

    show  argmax_a  W_a q + alpha sqrt(q^T A_a^-1 q)        ties: the first

A_a and W_a are those of a ridge regression a tool (`jaxret.learners.bandits.ridge`), exact as long
as ``capacity`` holds the rounds: A_a = ridge I + the queries of tool a; the paper's ridge is 1.
Here W may begin at the documents, which is the prior mean: b_a = ridge W_a,1 in the place of 0.

Bits of several right tools are what it expects: every tool has a success rate of its own. Its
guarantee, Õ(sqrt(K T d)), is that of a variant which no longer reuses its own choices (SupLinUCB,
Chu et al. 2011), where ``E[y] = W_a q`` holds.

43,215 tools of width 1,536: I d + C d numbers in memory, as many products a round.
"""

import jax.numpy as jnp

from jaxret.learners.bandits.ridge import ridge_learner, variances
from jaxret.learners.bandits.rows import Start
from jaxret.learners.learner import Learner
from jaxret.learners.registry import preset
from jaxret.rules import policies
from jaxret.runtime.validate import require


@preset
def linucb(
    *,
    alpha: float = 0.1,
    ridge: float = 1.0,
    scale: float = 0.5,
    start: Start = "document",
    capacity: int = 4096,
) -> Learner:
    """LinUCB, one exact model a tool: the best mean plus a bonus for what is little known.

    Args:
      alpha: width of the bonus, >= 0.
      ridge: precision of the prior, > 0.
      scale: what a cosine of 1 with the document promises, > 0; the rows are W / scale.
      start: 'document', W begins at scale times the documents; or 'zero'.
      capacity: C, rounds that are remembered.
    """
    require("alpha", alpha, ">= 0", lambda x: x >= 0)

    def upper(state, query):
        known = variances(state.extra, query, len(state.theta), ridge)
        return scale * (state.theta @ query) + alpha * jnp.sqrt(known)

    return ridge_learner(
        "linucb",
        policy=policies.greedy(),
        values=upper,
        ridge=ridge,
        scale=scale,
        start=start,
        capacity=capacity,
    )
