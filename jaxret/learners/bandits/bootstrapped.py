"""Bootstrapped heads: Thompson sampling by learners that saw the bits with different weights.

    show    argmax_i  of the rows of one head, drawn evenly
    learn   every head as `greedy` does, from the bit times a weight of its own: 0 or 2, evenly

(Eckles and Kaptein 2014, whose "double or nothing" weights these are; Osband and Van Roy 2015;
Osband et al. 2016 for heads.) What heads disagree on is what is little known. They all begin at the
same rows, so that with no data they rank as static retrieval does; the papers add a random prior,
without which nothing is explored before the first bits. The chance of a tool is known: the share of
the heads that would show it. There is no guarantee here. As with `greedy`, the softmax of a head
says that one tool is right; bits of several are spread over them.

``theta`` counts every bit once, as `greedy` would on the same stream: it ranks, and is what is
saved; the heads, in ``extra``, decide who is shown. Not for 43,215 tools of width 1,536: eight
heads are 2.1 GB more, and every round reads and writes all of them.

Letters: I items, d width, H heads.
"""

import jax
import jax.numpy as jnp

from jaxret.learners.bandits import rows
from jaxret.learners.bandits.rows import Start
from jaxret.learners.learner import CustomStructure, Learner, where_observed
from jaxret.learners.presets import greedy
from jaxret.learners.registry import preset
from jaxret.learners.replay import draw_key
from jaxret.rules import projections
from jaxret.runtime.validate import require
from jaxret.types import Slate


@preset
def bootstrapped(
    *,
    tau: float = 0.03,
    eta: float = 3e-3,
    heads: int = 8,
    seed: int = 0,
    start: Start = "document",
) -> Learner:
    """Bootstrapped heads: copies of `greedy` that differ in which bits they count.

    Args:
      tau: temperature of a head.
      eta: step size.
      heads: H, >= 1.
      seed: of the weights, which are the same in every run.
      start: 'document', with rows on the unit sphere; or 'zero', with free rows.
    """
    require("heads", heads, ">= 1", lambda x: x >= 1)
    rows.require_start(start)
    # A row of length 0 has no direction that a sphere could keep.
    projection = projections.sphere() if start == "document" else projections.none()

    def head(weight):
        """`greedy` that counts a bit ``weight`` times."""
        return greedy(tau=tau, eta=eta * weight, projection=projection)

    head(1.0)  # refuses what is out of range

    def init(theta, available=None):
        state = head(1.0).init(rows.first_rows(start, theta), available)
        copies = jnp.broadcast_to(state.theta, (heads, *theta.shape))
        return state._replace(extra=copies)

    def shown_by_each(state, query):
        """What every head would show, [H]."""
        values = rows.where_available(state, state.extra @ query)
        return jnp.argmax(values, axis=1).astype(jnp.int32)

    def probabilities(state, query):
        votes = jnp.zeros(len(state.theta), query.dtype)
        return votes.at[shown_by_each(state, query)].add(1.0 / heads)

    def act(state, query, key):
        favourites = shown_by_each(state, query)
        item = favourites[jax.random.randint(key, (), 0, heads)]
        share = (favourites == item).astype(query.dtype).mean()
        return Slate(items=item[None], propensity=share[None])

    def update(state, query, choice, feedback):
        half = jnp.float32(0.5)  # in every precision the same coins
        coins = jax.random.bernoulli(draw_key(seed, state.t), half, (heads,))
        weights = 2.0 * coins.astype(query.dtype)

        def learnt(theta, weight):
            own = state._replace(theta=theta, extra=())
            return head(weight).update(own, query, choice, feedback._replace(observed=True)).theta

        new = state._replace(
            theta=learnt(state.theta, 1.0), extra=jax.vmap(learnt)(state.extra, weights)
        )
        return where_observed(feedback, state, new)

    def change_rows(state, change):
        return state._replace(theta=change(state.theta), extra=jax.vmap(change)(state.extra))

    def scores(state, queries):
        return rows.where_available(state, rows.compare(queries, state.theta))

    return Learner(
        name="bootstrapped",
        init=init,
        act=act,
        update=update,
        logits=None,
        scores=scores,
        probabilities=probabilities,
        structure=CustomStructure(change_rows),
    )
