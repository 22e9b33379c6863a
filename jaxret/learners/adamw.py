"""The trainer of ORAG's experiments: mini-batches, AdamW, 1/sqrt(t)   (ORAG C.2).

The paper's text describes stochastic gradient descent; its experiments use this trainer. Within a
batch of B rounds Theta is constant and the B gradients are averaged; then AdamW moves every
coordinate by about the learning rate.

AdamW keeps moments for every entry of Theta, so its update is not linear in the gradient and
has no blocked form: the simulation uses the plain scan.

Letters: I items, d width, B rounds per batch.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret.learners.learner import Facts, Learner, acting_by, first_state, where_observed
from jaxret.learners.rank_one import coefficients, masked_logits, scores_by_rows
from jaxret.rules import estimators, policies, schedules
from jaxret.rules.estimators import Estimator
from jaxret.rules.policies import Policy
from jaxret.rules.schedules import Schedule
from jaxret.runtime.validate import require


class OpenBatch(NamedTuple):
    """``State.extra``: the factors of the open batch's gradient, and the optimiser's state.

    Attributes:
      coefficients: c of each round of the batch [B, I].
      queries: q / tau of each round of the batch [B, d].
      count: rounds observed so far [].
      optimiser: state of AdamW.
    """

    coefficients: Float[Array, "B I"]
    queries: Float[Array, "B d"]
    count: Int[Array, ""]
    optimiser: Any


def adamw(
    *,
    tau: float,
    eta: float,
    batch: int = 40,
    schedule: Schedule | None = None,
    estimator: Estimator | None = None,
    policy: Policy | None = None,
) -> Learner:
    """Builds ORAG trained by mini-batch AdamW with PyTorch's defaults (weight decay 0.01).

    Args:
      tau: temperature, > 0; the paper's is 1.
      eta: initial learning rate per coordinate, >= 0; the paper searches 1e-8 to 1e-5.
      batch: B >= 1, rounds between two updates; the paper searches 5 to 50.
      schedule: factor of eta by update (not by round); None: 1/sqrt(t).
      estimator: maps one reward to coefficients; None: Eq. (4).
      policy: maps logits to the items shown; None: draws from p.

    Raises:
      ValueError: if a number is out of its range.
    """
    import optax  # takes half a second, and no other learner needs it

    require("tau", tau, "> 0", lambda x: x > 0)
    require("eta", eta, ">= 0", lambda x: x >= 0)
    require("batch", batch, ">= 1", lambda x: x >= 1)
    schedule = schedule or schedules.inverse_sqrt()
    estimator = estimator or estimators.importance_weighted()
    policy = policy or policies.softmax()
    transform = optax.adamw(lambda count: eta * schedule(jnp.asarray(count)), weight_decay=0.01)

    def init(theta, available=None):
        open_batch = OpenBatch(
            coefficients=jnp.zeros((batch, theta.shape[0]), theta.dtype),
            queries=jnp.zeros((batch, theta.shape[1]), theta.dtype),
            count=jnp.zeros((), jnp.int32),
            optimiser=transform.init(theta),
        )
        return first_state(theta, available, open_batch)

    def logits(state, query):
        return masked_logits(state, query, tau)

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
        move, optimiser = transform.update(gradient, state.extra.optimiser, state.theta)
        available = state.available[:, None]  # weight decay and momentum move all rows
        extra = state.extra._replace(optimiser=optimiser)
        return state._replace(theta=state.theta + move * available, extra=extra)

    act, probabilities = acting_by(policy, logits)
    return Learner(
        name="adamw",
        init=init,
        act=act,
        update=update,
        scores=scores_by_rows,
        logits=logits,
        probabilities=probabilities,
        facts=Facts(oracle=not estimator.bandit),
    )
