"""Bootstrapped heads: Thompson sampling by copies of `greedy` with random reward weights."""

import jax
import jax.numpy as jnp

from jaxret.learners.bandits import common
from jaxret.learners.bandits.common import Start
from jaxret.learners.learner import Acting, CustomStructure, Learner
from jaxret.learners.presets import greedy
from jaxret.learners.rank_one import coefficients, rule_of, step
from jaxret.learners.registry import preset
from jaxret.learners.replay import draw_key
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
    """Learn several heads: copies of `greedy` that weight the rewards at random.

        show    argmax_i  by the rows of one head, drawn uniformly
        learn   each head as `greedy` does, with the reward's term weighted by 0 or 2, each with
                probability 1/2, drawn per head and round

    Eckles and Kaptein (2014) for the "double or nothing" weights; Osband and Van Roy (2015); Osband
    et al. (2016) for heads. Heads disagree where data is scarce. Departure from the papers: all
    heads begin at the same rows, so that without data they rank as static retrieval does; the
    papers add a random prior, without which there is no exploration before the first rewards.
    There is no guarantee. As in `greedy`, the softmax of a head assumes one right tool: with
    several right tools their rewards are spread over them. With start 'hybrid' all heads have the
    same offsets, in what they show and in their softmax.

    The probability of a tool is the share of heads that would show it. ``theta`` weights every
    reward by 1, as `greedy` would on the same stream; it is used for ranking and saving. The heads,
    in ``extra``, decide what is shown. With 43,215 tools of width 1,536 eight heads take 2.1 GB
    more, and every round reads and writes all of them, which is too slow.

    Args:
      tau: temperature of a head, > 0.
      eta: step size, >= 0.
      heads: H, number of heads, >= 1.
      seed: seed of the weights; they are the same in every run.
      start: 'document', with rows on the unit sphere; 'zero', with free rows; or 'hybrid', as
        'document', with words and usage.

    Returns:
      The learner; `State.extra` are the rows of the heads [H, I, d].

    Raises:
      ValueError: if a setting is out of range.
    """
    require("heads", heads, ">= 1", lambda x: x >= 1)
    projection = common.default_projection(start)

    def head(weight):
        """Return the rule of `greedy` with the gradient of a reward multiplied by ``weight``."""
        rule = rule_of(greedy(tau=tau, eta=eta * weight, projection=projection))
        assert rule is not None
        return rule

    head(1.0)  # raises if a setting is out of range

    def choices(state, query):
        """Return the tool that each head would show [H]."""
        values = common.where_available(state, state.extra @ query.vector + query.offset[None])
        return jnp.argmax(values, axis=1).astype(jnp.int32)

    def act(state, query, key):
        favourites = choices(state, query)
        item = favourites[jax.random.randint(key, (), 0, heads)]
        share = (favourites == item).astype(state.theta.dtype).mean()
        return Slate(items=item[None], propensity=share[None])

    def probabilities(state, query):
        votes = jnp.zeros(len(state.theta), state.theta.dtype)
        return votes.at[choices(state, query)].add(1.0 / heads)

    def learn(state, query, choice, feedback):
        half = jnp.float32(0.5)  # the same weights in every precision
        coins = jax.random.bernoulli(draw_key(seed, state.t), half, (heads,))
        weights = 2.0 * coins.astype(state.theta.dtype)

        def learnt(theta, weight):
            own, rule = state._replace(theta=theta, extra=()), head(weight)
            z = common.where_available(own, common.cosines(own, query) / tau)
            c = coefficients(rule.estimator, z, choice, feedback, None)
            return step(rule, own, own.t, query.vector, query.vector, c).theta

        return state._replace(
            theta=learnt(state.theta, 1.0), extra=jax.vmap(learnt)(state.extra, weights)
        )

    def change_rows(state, change):
        return state._replace(theta=change(state.theta), extra=jax.vmap(change)(state.extra))

    return common.bandit(
        "bootstrapped",
        start=start,
        acting=Acting(act, probabilities),
        learn=learn,
        predict=common.cosines_of_all,
        extra=lambda theta: jnp.broadcast_to(theta, (heads, *theta.shape)),
        projection=projection,
        structure=CustomStructure(change_rows),
    )
