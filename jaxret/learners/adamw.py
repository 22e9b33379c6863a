"""The paper's trainer as it is written: mini-batches, AdamW, 1/sqrt(t)   (ORAG C.2).

The text of the paper does stochastic gradient descent; its experiments do this. Within a
batch of B rounds Theta stands still and the B gradients are averaged; then AdamW moves every
coordinate by about the learning rate. `experiments/score_drift.py` bounds how far that can move
a score: with the paper's rates (1e-8 to 1e-5) not far enough to matter
(`experiments.paper_settings`).

AdamW keeps moments for every entry of Theta, so its update is not linear in the gradient and
has no blocked form: it takes the plain scan.

Letters: I items, d width, B rounds a batch.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret.learners.learner import Learner, where_observed
from jaxret.learners.rank_one import coefficients, masked_logits, scores_by_rows
from jaxret.rules import estimators, policies, schedules
from jaxret.rules.estimators import Estimator
from jaxret.rules.policies import Policy
from jaxret.rules.schedules import Schedule
from jaxret.runtime.validate import require
from jaxret.types import State


class OpenBatch(NamedTuple):
    """The gradient of the open batch, which has rank B, as its factors; and the moments."""

    coefficients: Float[Array, "B I"]
    queries: Float[Array, "B d"]
    count: Int[Array, ""]  # rounds that were observed
    optimiser: Any


def minibatch_adamw(
    *,
    tau: float,
    eta: float,
    batch: int = 40,
    schedule: Schedule | None = None,
    estimator: Estimator | None = None,
    policy: Policy | None = None,
) -> Learner:
    """ORAG by AdamW with PyTorch's defaults (weight decay 0.01).

    Args:
      tau: temperature; the paper's is 1.
      eta: initial learning rate, per coordinate; the paper searches 1e-8 to 1e-5.
      batch: B, rounds between two updates; the paper searches 5 to 50.
      schedule: factor of eta by update (not by round); None is 1/sqrt(t).
      estimator: None is Eq. (4).
      policy: None draws from p.
    """
    import optax  # half a second, which no other learner needs

    require("tau", tau, "> 0", lambda x: x > 0)
    require("eta", eta, ">= 0", lambda x: x >= 0)
    require("batch", batch, ">= 1", lambda x: x >= 1)
    schedule = schedule or schedules.inverse_sqrt()
    estimator = estimator or estimators.importance_weighted()
    policy = policy or policies.softmax()
    adamw = optax.adamw(lambda count: eta * schedule(jnp.asarray(count)), weight_decay=0.01)

    def init(theta, available=None):
        open_batch = OpenBatch(
            coefficients=jnp.zeros((batch, theta.shape[0]), theta.dtype),
            queries=jnp.zeros((batch, theta.shape[1]), theta.dtype),
            count=jnp.zeros((), jnp.int32),
            optimiser=adamw.init(theta),
        )
        here = jnp.ones(len(theta), bool) if available is None else available
        return State(theta=theta, available=here, t=jnp.zeros((), jnp.int32), extra=open_batch)

    def logits(state, query):
        return masked_logits(state, query, tau)

    def act(state, query, key):
        return policy.show(key, logits(state, query), None)

    def chances(state, query):
        assert policy.chances is not None
        return policy.chances(logits(state, query))

    def update(state, query, choice, feedback):
        c = coefficients(estimator, logits(state, query), choice, feedback, None)
        slot = state.extra.count % batch
        open_batch = state.extra._replace(
            coefficients=state.extra.coefficients.at[slot].set(c),
            queries=state.extra.queries.at[slot].set(query / tau),
            count=state.extra.count + 1,
        )
        new = state._replace(extra=open_batch)
        new = lax.cond(slot == batch - 1, step, lambda state: state, new)
        return where_observed(feedback, state, new)

    def step(state):
        gradient = state.extra.coefficients.T @ state.extra.queries / batch
        move, optimiser = adamw.update(gradient, state.extra.optimiser, state.theta)
        here = state.available[:, None]  # weight decay and momentum would move absent rows too
        extra = state.extra._replace(optimiser=optimiser)
        return state._replace(theta=state.theta + move * here, extra=extra)

    return Learner(
        name="minibatch_adamw",
        init=init,
        act=act,
        update=update,
        logits=logits,
        scores=scores_by_rows,
        oracle=not estimator.bandit,
        chances=None if policy.chances is None else chances,
    )
