"""A guard: nearly surely, and in every round at once, little is lost against static retrieval.

    learner = guarded(greedy(), budget=100)

It may cost the users of static retrieval ``budget`` successes, and with probability 1 - delta no
more, however long it runs and whatever the learner does. In each round the guard tosses a coin:
with probability epsilon the tool of static retrieval is shown, b_t, else the learner's. The bits of
both say how much may have been lost; where that is more than the budget the learner must go, and
from then on b_t is shown, for ever.

**What is guaranteed.** Let y_t(i) in [0, 1] be the bit that tool i would get in round t: any
numbers that are settled before the round's draws, by chance or by an adversary who knows the past.
With i_t the tool that is shown, the loss so far is

    L_t = sum_{s <= t} y_s(b_s) - y_s(i_s)

the realised number of successes that the tools of static retrieval would have had in these very
rounds, less those that there were. Then ``P(some t: L_t > budget) <= delta``, over the guard's and
the learner's draws alone. Where what is shown does not change what is asked and what is right, the
first sum is what static retrieval would have had if it had served alone.

**Proof.** Let rho_t >= epsilon be the probability that b_t is shown, 0 < lambda < -ln(1 - epsilon),

    kappa_t = -ln[(1 - (1 - rho_t) e^lambda) / rho_t],        f_t = -lambda y_t   if i_t is not b_t
                                                                    kappa_t y_t   if it is

Where i_t is not b_t, y_t(i_t) cancels in ``lambda [y_t(b_t) - y_t(i_t)] - f_t``. So, given the
past, the mean of its exponential is ``(1 - rho_t) e^(lambda y) + rho_t e^(-kappa_t y)``, with
y = y_t(b_t): convex in y, and 1 at y = 0 and at y = 1, hence at most 1 in between. Therefore
``exp(lambda L_t - f_1 - .. - f_t)`` is a supermartingale that starts at 1. By Ville's inequality,

    L_t <= U_t = [ln(1 / delta) + f_1 + .. + f_t] / lambda     for all t, but for probability delta

which the guard can compute: it lets the learner serve while ``U_t <= budget``. L_t grows only where
i_t is not b_t, and there U_t does not. So at the first t with L_t > budget, U_t is at most the
budget still, and below L_t: that has probability at most delta.

It is a bet against "more than that was lost" (Shafer 2021; Waudby-Smith and Ramdas 2024), with
static retrieval as the rule that conservative bandits fall back on (Wu et al. 2016; Kazerouni et
al. 2017), without their model of rewards. lambda is chosen so that U_0, the doubt before anything
is known, is half of the budget.

**Limits.** y_t is the bit that a user reports, false bits included, and 0 where no answer comes.
Where answers are delayed by a time that is independent of the draws, and the catalogue does not
change meanwhile, the guarantee covers the rounds whose answers have come; successes of the rounds
that are open when the learner is stopped may be lost in addition. The budget is for the whole run:
a learner that has earned much may lose it again.

Letters: I items, d width.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxret.learners.learner import Learner, where_observed
from jaxret.learners.wrappers import wrap
from jaxret.runtime import over_items
from jaxret.runtime.validate import require
from jaxret.types import Slate, State

LARGEST = 0.9  # lambda, as a share of -ln(1 - epsilon): there kappa has no end


class Guard(NamedTuple):
    """`State.extra` of a guarded learner."""

    extra: Any  # the learner's own
    static: Float[Array, "I d"]  # the rows of static retrieval, which stay
    bound: Float[Array, ""]  # U_t: what may have been lost so far
    stopped: Bool[Array, ""]  # static retrieval serves from now on


def guarded(
    learner: Learner, budget: float, *, delta: float = 0.05, epsilon: float = 0.2
) -> Learner:
    """A learner that must go before it has cost more than a budget against static retrieval.

    What it costs where the learner is good: static retrieval's tool in a share epsilon of the
    rounds in which the two differ, and the chance that it must go all the same. It takes the plain
    scan.

    Args:
      learner: any that shows one tool a round and knows the chance of each.
      budget: successes that may be lost in all, as the bits count them; at least
        ``ln(1 / delta) / (-0.9 ln(1 - epsilon))``, and the sooner too small for a good learner the
        nearer it is to that.
      delta: the probability with which more may be lost, in (0, 1).
      epsilon: share of the rounds in which static retrieval is asked, in (0, 1): the larger, the
        sooner the guard knows, and the more it costs.

    Raises:
      ValueError: for a learner without the probability of each tool, or a budget that is too small.
    """
    require("delta", delta, "in (0, 1)", lambda x: 0 < x < 1)
    require("epsilon", epsilon, "in (0, 1)", lambda x: 0 < x < 1)
    doubt, largest = -np.log(delta), -LARGEST * np.log1p(-epsilon)
    allowed = f">= {doubt / largest:.1f}, the doubt that delta={delta} and epsilon={epsilon} leave"
    require("budget", budget, allowed, lambda x: x >= doubt / largest)
    stake = min(2 * doubt / budget, largest)  # lambda
    if (own_probabilities := learner.probabilities) is None:
        raise ValueError(
            f"learner {learner.name!r} does not give the probability of each item: a guard needs "
            "one item a round and `Learner.probabilities`"
        )

    def init(theta, available=None):
        own = learner.init(theta, available)
        bound = jnp.asarray(doubt / stake, theta.dtype)
        return own._replace(extra=Guard(own.extra, theta, bound, jnp.asarray(False)))

    def bare(state):
        return state._replace(extra=state.extra.extra)

    def rewrap(state, own):
        return own._replace(extra=state.extra._replace(extra=own.extra))

    def probabilities(state, query):
        own, static = own_probabilities(bare(state), query), static_choice(state, query)
        share = jnp.where(state.extra.stopped, 1.0, epsilon).astype(own.dtype)
        return (1 - share) * own + share * over_items.one_hot(static, own, None)

    def act(state, query, key):
        coin, key = jax.random.split(key)
        slate = learner.act(bare(state), query, key)
        toss = jax.random.uniform(coin) < epsilon
        item = jnp.where(toss | state.extra.stopped, static_choice(state, query), slate.items[0])
        return Slate(items=item[None], propensity=probabilities(state, query)[item][None])

    def update(state, query, choice, feedback):
        own = learner.update(bare(state), query, choice, feedback)
        guard: Guard = state.extra
        by_static = choice.item == static_choice(state, query)
        price = jnp.where(by_static, _kappa(stake, choice.propensity, epsilon) / stake, -1.0)
        bound = guard.bound + feedback.reward * price.astype(guard.bound.dtype)
        stopped = guard.stopped | (bound > budget)
        new = own._replace(extra=Guard(own.extra, guard.static, bound, stopped))
        return where_observed(feedback, state, new)

    def scores(state, queries):
        static = jnp.matmul(queries, state.extra.static.T, precision=jax.lax.Precision.HIGHEST)
        static = jnp.where(state.available, static, -jnp.inf)
        return jnp.where(state.extra.stopped, static, learner.scores(bare(state), queries))

    def own_rows(state, change):
        guard: Guard = state.extra
        return state._replace(extra=guard._replace(static=change(guard.static)))

    return wrap(
        learner,
        f"{learner.name}+guard",
        unwrap=bare,
        rewrap=rewrap,
        own_rows=own_rows,
        init=init,
        act=act,
        update=update,
        scores=scores,
        probabilities=probabilities,
    )


def static_choice(state: State, query: Float[Array, " d"]) -> Int[Array, ""]:
    """The tool that static retrieval shows, of those that are there.

    Args:
      state: of a guarded learner.
      query: as it is asked.

    Returns:
      its row [].
    """
    scores = over_items.masked(state.extra.static @ query, state.available)
    return over_items.argmax(scores, None)


def _kappa(stake: float, propensity: Float[Array, ""], epsilon: float) -> Float[Array, ""]:
    """What a success of b_t counts, where b_t was shown with this probability; 0 at 1."""
    rho = jnp.clip(propensity, epsilon, 1.0)
    return jnp.log(rho) - jnp.log1p(-(1 - rho) * jnp.exp(stake))
