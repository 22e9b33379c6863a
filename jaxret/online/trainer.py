"""The paper's trainer as it is written: mini-batches, AdamW, 1/sqrt(t)   (ORAG C.2).

The text of the paper does stochastic gradient descent; its experiments do this. Within a
batch of B rounds Theta stands still and the B gradients are averaged; then AdamW moves every
coordinate by about the learning rate. `jaxret.theory.reach` bounds how far that can move a score:
with the printed rates (1e-8 to 1e-5) not far enough to matter (`experiments.printed`).

AdamW keeps moments for every entry of Theta, so its update is not linear in the gradient and
has no blocked form: it takes the plain scan.

Letters: I items, d width, B rounds a batch.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.online import estimators, schedules
from jaxret.online import policy as policies
from jaxret.online.estimators import Estimator
from jaxret.online.learner import Learner, coefficients, logits, measure
from jaxret.online.policy import Policy
from jaxret.online.schedules import Schedule
from jaxret.validate import require


class TrainerState(NamedTuple):
    """As `jaxret.online.learner.State`, with the optimiser's moments and the open batch.

    A batch's gradient has rank B, so the open batch is kept as its factors.
    """

    theta: Float[Array, "I d"]
    available: Bool[Array, " I"]
    t: Int[Array, ""]
    coefficients: Float[Array, "B I"]
    queries: Float[Array, "B d"]
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
    require("tau", tau, "> 0", lambda x: x > 0)
    require("eta", eta, ">= 0", lambda x: x >= 0)
    require("batch", batch, ">= 1", lambda x: x >= 1)
    schedule = schedule or schedules.inverse_sqrt()
    estimator = estimator or estimators.importance_weighted()
    policy = policy or policies.softmax()
    adamw = optax.adamw(lambda count: eta * schedule(jnp.asarray(count)), weight_decay=0.01)

    def init(theta, available):
        return TrainerState(
            theta=theta,
            available=available,
            t=jnp.zeros((), jnp.int32),
            coefficients=jnp.zeros((batch, theta.shape[0]), theta.dtype),
            queries=jnp.zeros((batch, theta.shape[1]), theta.dtype),
            optimiser=adamw.init(theta),
        )

    def act(state, query, key):
        return policy.show(key, logits(state, query, tau), None)

    def update(state, query, choice, reward, labels):
        z = logits(state, query, tau)
        c = coefficients(estimator, z, choice, reward, labels, None)
        slot = state.t % batch
        state = state._replace(
            t=state.t + 1,
            coefficients=state.coefficients.at[slot].set(c),
            queries=state.queries.at[slot].set(query / tau),
        )
        state = lax.cond(slot == batch - 1, step, lambda state: state, state)
        return state, measure(z, labels, None)

    def step(state):
        gradient = state.coefficients.T @ state.queries / batch
        move, optimiser = adamw.update(gradient, state.optimiser, state.theta)
        here = state.available[:, None]  # weight decay and momentum would move absent rows too
        return state._replace(theta=state.theta + move * here, optimiser=optimiser)

    return Learner("minibatch_adamw", init, act, update, None)
