"""A guard that bounds, at all times and with high probability, the loss against static retrieval.

    learner = guarded(greedy(), budget=100)

With probability 1 - delta the learner costs at most ``budget`` successes compared with static
retrieval, for any learner and any number of rounds. In each round the guard shows b_t,
the tool of static retrieval, with probability epsilon, else the learner's tool. From the rewards of
both it computes an upper bound on the loss; once the bound exceeds the budget, the learner is
stopped and b_t is shown in every later round.

**Guarantee.** Let y_t(i) in [0, 1] be the reward that tool i would get in round t, fixed before the
draws of the round, at random or by an adversary who knows the past. With i_t the tool that is
shown, the loss so far is

    L_t = sum_{s <= t} y_s(b_s) - y_s(i_s)

the number of successes that the tools of static retrieval would have had in these rounds, minus the
observed successes. Then ``P(some t: L_t > budget) <= delta``, over the draws of the guard and the
learner only. If the tools shown do not influence queries and right tools, the first sum is the
number of successes of static retrieval serving alone.

**Proof.** Let rho_t >= epsilon be the probability that b_t is shown, 0 < lambda < -ln(1 - epsilon),

    kappa_t = -ln[(1 - (1 - rho_t) e^lambda) / rho_t],        f_t = -lambda y_t   if i_t is not b_t
                                                                    kappa_t y_t   if it is

If i_t is not b_t, y_t(i_t) cancels in ``lambda [y_t(b_t) - y_t(i_t)] - f_t``. So, given the past,
the mean of its exponential is ``(1 - rho_t) e^(lambda y) + rho_t e^(-kappa_t y)``, with
y = y_t(b_t): convex in y, and 1 at y = 0 and at y = 1, hence at most 1 in between. Therefore
``exp(lambda L_t - f_1 - .. - f_t)`` is a supermartingale that starts at 1. By Ville's inequality,

    L_t <= U_t = [ln(1 / delta) + f_1 + .. + f_t] / lambda     for all t, with probability 1 - delta

The guard computes U_t and lets the learner serve while ``U_t <= budget``. L_t grows only in rounds
with i_t != b_t, and U_t does not grow in these rounds. So at the first t with L_t > budget,
U_t <= budget < L_t, an event of probability at most delta.

The supermartingale is the wealth of a bet against a larger loss (Shafer 2021; Waudby-Smith and
Ramdas 2024). Static retrieval is the fallback, as in conservative bandits (Wu et al. 2016;
Kazerouni et al. 2017), but without their model of rewards. lambda is chosen so that U_0, the bound
before the first round, is half of the budget.

**Limits.** y_t is the reward that a user reports, errors included, and 0 without feedback. If
feedback is delayed by a time that is independent of the draws, and the catalogue does not change
meanwhile, the guarantee covers the rounds whose feedback has arrived; rounds still open when the
learner is stopped may add to the loss. The budget is for the whole run: earlier gains may be lost.

Letters: I items, d width.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxret.learners import presets
from jaxret.learners.learner import Learner, vector_of, where_observed
from jaxret.learners.rank_one import scores_by_rows
from jaxret.learners.wrappers import Wrapped, wrap, wrapper
from jaxret.runtime import over_items
from jaxret.runtime.validate import require
from jaxret.types import Slate, State

LARGEST = 0.9  # largest lambda, as a share of -ln(1 - epsilon), where kappa is infinite


class Guard(NamedTuple):
    """`State.extra` of a guarded learner."""

    extra: Any  # `State.extra` of the inner learner
    static: Float[Array, "I d"]  # rows of static retrieval, constant
    bound: Float[Array, ""]  # U_t, upper bound on the loss so far
    stopped: Bool[Array, ""]  # whether static retrieval serves from now on


@wrapper
def guarded(
    learner: Learner, budget: float, *, delta: float = 0.05, epsilon: float = 0.2
) -> Learner:
    """Stop a learner before it has lost more than a budget against static retrieval.

    For a learner that beats static retrieval, the guard forgoes the gain in a share epsilon of the
    rounds, and may stop the learner nonetheless. A guarded learner is simulated by the plain scan.

    Args:
      learner: any learner that shows one tool per round and has `Learner.probabilities`.
      budget: successes that may be lost in total, by the reported rewards; at least
        ``ln(1 / delta) / (-0.9 ln(1 - epsilon))``. Near this minimum even a good learner is likely
        to be stopped.
      delta: probability with which more may be lost, in (0, 1).
      epsilon: probability of showing static retrieval's tool, in (0, 1); larger values detect a
        loss sooner and cost more.

    Raises:
      ValueError: if the learner has no `Learner.probabilities`, or the budget is too small.
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
            "one item per round and `Learner.probabilities`"
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
        documents = state._replace(theta=state.extra.static)
        static = scores_by_rows(documents, vector_of(queries))
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


def serving(learner: Learner, state: State) -> tuple[Learner, State]:
    """Return static retrieval in place of a learner whose guard has stopped it.

    Args:
      learner: any learner.
      state: state of one seed.

    Returns:
      The learner and its state, unchanged unless it is guarded and stopped.
    """
    inner, own = learner, state
    while isinstance(inner.structure, Wrapped):
        if isinstance(own.extra, Guard) and bool(own.extra.stopped):
            static = presets.frozen()._replace(name=f"{learner.name}: static retrieval")
            return static, own._replace(theta=own.extra.static, extra=())
        inner, own = inner.structure.inner, inner.structure.unwrap(own)
    return learner, state


def static_choice(state: State, query: Any) -> Int[Array, ""]:
    """Return the available tool that static retrieval ranks first.

    Returns:
      The row of the tool [].
    """
    scores = over_items.masked(state.extra.static @ vector_of(query), state.available)
    return over_items.argmax(scores, None)


def _kappa(stake: float, propensity: Float[Array, ""], epsilon: float) -> Float[Array, ""]:
    """Compute kappa_t for the probability with which b_t was shown; 0 at probability 1."""
    rho = jnp.clip(propensity, epsilon, 1.0)
    return jnp.log(rho) - jnp.log1p(-(1 - rho) * jnp.exp(stake))
