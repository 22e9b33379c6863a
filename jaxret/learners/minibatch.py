"""Mini-batches: one step of an optax optimiser per B rounds   (ORAG Section 3, C.2).

Within a batch Theta is constant, and the gradients of its B rounds are averaged:

    c_s    of each round s, from the estimator at the constant Theta
    g      = (1 / B) sum_s c_s q_s^T / tau
    Theta <- Theta + optimiser(g)

    learner = minibatch("sgd", optax.sgd(1e-3), tau=0.05, batch=10)

The paper's text describes stochastic gradient descent (B = 1, or averaged); its experiments use
`adamw`, which moves every coordinate by about the learning rate. Blocks of B rounds have an exact
form (`jaxret.simulation.blocked.minibatch`).

Letters: I items, d width, B rounds per batch.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret.learners.learner import (
    ChangeRows,
    Facts,
    Learner,
    acting_by,
    first_state,
    where_observed,
)
from jaxret.learners.rank_one import coefficients, masked_logits, scores_by_rows
from jaxret.rules import estimators, policies, schedules
from jaxret.rules.estimators import Estimator
from jaxret.rules.policies import Policy
from jaxret.rules.schedules import Schedule
from jaxret.runtime.validate import require
from jaxret.types import State

if TYPE_CHECKING:
    from optax import GradientTransformation  # importing optax takes half a second


class OpenBatch(NamedTuple):
    """``State.extra``: the factors of the open batch's gradient, and the optimiser's state."""

    coefficients: Float[Array, "B I"]  # c of each round of the batch [B, I]
    queries: Float[Array, "B d"]  # q / tau of each round of the batch [B, d]
    count: Int[Array, ""]  # rounds observed so far []
    optimiser: Any  # state of the optimiser


class Batches(NamedTuple):
    """The structure of a learner that is trained by mini-batches."""

    policy: Policy  # maps logits to the items shown
    estimator: Estimator  # maps one reward to the coefficients c [I]
    tau: float | Float[Array, ""]  # temperature, > 0
    batch: int  # B
    optimiser: "GradientTransformation"  # maps the gradient of a batch to the move of Theta

    def change_rows(self, state: State, change: ChangeRows) -> State:
        """Apply a function [I, d] -> [I', d] to Theta; the moments of the optimiser stay."""
        return state._replace(theta=change(state.theta))

    def map_queries(self, state: State, queries: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        """Return the queries: there is no map.

        Returns:
          [..., d].
        """
        return queries

    def end_batch(self, state: State) -> State:
        """Move Theta by the averaged gradient of a complete batch.

        Args:
          state: state whose ``extra`` holds the factors of B rounds. Rows of absent items stay.
        """
        gradient = state.extra.coefficients.T @ state.extra.queries / self.batch
        moved: tuple[Any, Any] = self.optimiser.update(gradient, state.extra.optimiser, state.theta)
        move, optimiser = moved
        available = state.available[:, None]  # weight decay and momentum move all rows
        extra = state.extra._replace(optimiser=optimiser)
        return state._replace(theta=state.theta + move * available, extra=extra)


def minibatch(
    name: str,
    optimiser: "GradientTransformation",
    *,
    tau: float,
    batch: int,
    estimator: Estimator | None = None,
    policy: Policy | None = None,
) -> Learner:
    """Build a learner that is trained by mini-batches.

    Args:
      name: name of the learner in tables.
      optimiser: any optax gradient transformation with its learning rate, as ``optax.sgd(1e-3)``.
      tau: temperature, > 0; the paper's is 1.
      batch: B >= 1, rounds between two updates; the paper searches 5 to 50.
      estimator: maps one reward to coefficients; None: Eq. (4).
      policy: maps logits to the items shown; None: draws from p.

    Raises:
      ValueError: if a number is out of its range, or the optimiser is not from optax.
    """
    transforms = "a transformation of optax, such as optax.sgd(1e-3)"
    require("optimiser", optimiser, transforms, lambda x: hasattr(x, "update"))
    require("tau", tau, "> 0", lambda x: x > 0)
    require("batch", batch, ">= 1", lambda x: x >= 1)
    estimator = estimator or estimators.importance_weighted()
    policy = policy or policies.softmax()
    batches = Batches(policy, estimator, tau, batch, optimiser)

    def init(theta, available=None):
        open_batch = OpenBatch(
            coefficients=jnp.zeros((batch, theta.shape[0]), theta.dtype),
            queries=jnp.zeros((batch, theta.shape[1]), theta.dtype),
            count=jnp.zeros((), jnp.int32),
            optimiser=optimiser.init(theta),
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
        new = lax.cond(slot == batch - 1, batches.end_batch, lambda state: state, new)
        return where_observed(feedback, state, new)

    act, probabilities = acting_by(policy, logits)
    return Learner(
        name=name,
        init=init,
        act=act,
        update=update,
        scores=scores_by_rows,
        logits=logits,
        probabilities=probabilities,
        structure=batches,
        facts=Facts(oracle=not estimator.bandit),
    )


def adamw(
    *,
    tau: float,
    eta: float,
    batch: int = 40,
    schedule: Schedule | None = None,
    estimator: Estimator | None = None,
    policy: Policy | None = None,
) -> Learner:
    """Build ORAG trained by mini-batch AdamW with PyTorch's defaults (weight decay 0.01).

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

    require("eta", eta, ">= 0", lambda x: x >= 0)
    factor = schedule or schedules.inverse_sqrt()
    optimiser = optax.adamw(lambda count: eta * factor(jnp.asarray(count)), weight_decay=0.01)
    shared: dict[str, Any] = {"estimator": estimator, "policy": policy}
    return minibatch("adamw", optimiser, tau=tau, batch=batch, **shared)
