"""What a run is compared with: the optimum in hindsight, and the proximal comparator.

    hindsight   Theta* = argmin sum_t l_t(Theta)                                ORAG Eq. (2)
    proximal    Theta° = argmin sum_t l_t(Theta) + ||Theta - Theta_1||^2 / (2 eta)     (ours)

Theta* need not exist. If some Theta ranks the label of every query strictly first (`margin`
> 0), scaling it up drives the loss to 0 and no Theta attains that: norms grow for as long as
one cares to iterate. An item that is nobody's label can do the same. Where Theta* exists it
is not unique (adding one vector to every row changes no loss); gradients have rows that sum
to zero, so a search from Theta_1 finds the one nearest to Theta_1 in that direction.

Theta° always exists, is unique, and gives Theorem 5.1 its smallest right-hand side: the
theorem holds for any comparator U, bounds the run's loss by
``sum_t l_t(U) + ||Theta_1 - U||^2 / (2 eta) + variance``, and Theta° is the U that minimises it.
The objective is strongly convex with modulus 1 / eta, so a gradient of norm g certifies

    ||Theta - Theta°|| <= eta g    and    objective - minimum <= eta g^2 / 2.

Letters: I items, d width, N different queries, L labels.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.runtime.validate import require
from jaxret.theory.regret import losses

_MEMORY = 10  # pairs of past steps and gradients that L-BFGS keeps, each [I, d] twice


class Comparator(NamedTuple):
    """A minimiser to the accuracy that was reached.

    ``distance`` and ``gap`` hold for the exact gradient, so they are worth what the rounding
    of ``gradient_norm`` is worth; `hindsight` is not strongly convex and has none (infinity).
    """

    theta: Float[Array, "I d"]
    loss: Float[Array, ""]  # sum_t l_t(theta), without the proximal term
    objective: Float[Array, ""]  # what was minimised
    gradient_norm: Float[Array, ""]
    iterations: Int[Array, ""]
    converged: Bool[Array, ""]
    distance: Float[Array, ""]  # at most so far from the minimiser (Frobenius)
    gap: Float[Array, ""]  # at most so much above the minimum


def hindsight(
    queries: Float[Array, "N d"],
    labels: Int[Array, "N L"],
    *,
    tau: float | Float[Array, ""],
    theta_0: Float[Array, "I d"],
    counts: Float[Array, " N"] | None = None,
    tolerance: float = 1e-4,
    max_iterations: int = 1000,
) -> Comparator:
    """Minimises the loss of the whole stream, to a gradient norm.

    Args:
      queries: the different queries.
      labels: [N, L], -1 pads.
      tau: temperature, > 0.
      theta_0: where to start; Theta_1 gives the nearest of equal minimisers.
      counts: how often each query came; None means once.
      tolerance: stops at ``||gradient|| <= tolerance * sum_t ||q_t|| / tau``, a relative
        measure: the right side without ``tolerance`` bounds the gradient within sqrt(2).
      max_iterations: of L-BFGS.
    """
    counts = _ones(queries) if counts is None else counts
    stop = tolerance * _scale(queries, counts, tau)

    def objective(theta):
        return jnp.sum(counts * losses(theta, queries, labels, tau=tau))

    theta, value, norm, iterations = _minimise(objective, theta_0, stop, max_iterations)
    return Comparator(
        theta=theta,
        loss=value,
        objective=value,
        gradient_norm=norm,
        iterations=iterations,
        converged=norm <= stop,
        distance=jnp.full_like(norm, jnp.inf),
        gap=jnp.full_like(norm, jnp.inf),
    )


def proximal(
    queries: Float[Array, "N d"],
    labels: Int[Array, "N L"],
    theta_1: Float[Array, "I d"],
    *,
    eta: float | Float[Array, ""],
    tau: float | Float[Array, ""],
    counts: Float[Array, " N"] | None = None,
    theta_0: Float[Array, "I d"] | None = None,
    tolerance: float = 1e-5,
    max_iterations: int = 200,
) -> Comparator:
    """The comparator for which Theorem 5.1 says most about a run of step size ``eta``.

    Args:
      queries: the different queries.
      labels: [N, L], -1 pads.
      theta_1: where the run started.
      eta: the run's step size, > 0.
      tau: temperature, > 0.
      counts: how often each query came; None means once.
      theta_0: where the search starts; None means at ``theta_1``, which is close by.
      tolerance: as in `hindsight`. float32 reaches about 1e-6 (asked for less it searches to
        the last iteration), float64 (`jax.enable_x64`) about 1e-14.
      max_iterations: of L-BFGS.
    """
    require("eta", eta, "> 0", lambda x: x > 0)
    counts = _ones(queries) if counts is None else counts
    stop = tolerance * _scale(queries, counts, tau)

    def penalty(theta):
        return jnp.sum((theta - theta_1) ** 2) / (2 * eta)

    def objective(theta):
        return jnp.sum(counts * losses(theta, queries, labels, tau=tau)) + penalty(theta)

    start = theta_1 if theta_0 is None else theta_0
    theta, value, norm, iterations = _minimise(objective, start, stop, max_iterations)
    return Comparator(
        theta=theta,
        loss=value - penalty(theta),
        objective=value,
        gradient_norm=norm,
        iterations=iterations,
        converged=norm <= stop,
        distance=eta * norm,
        gap=eta * norm**2 / 2,
    )


def proximal_losses(
    theta_1: Float[np.ndarray, "I d"],
    queries: Float[np.ndarray, "N d"],
    labels: Int[np.ndarray, "N L"],
    *,
    tau: float,
    eta: float,
    counts: Float[np.ndarray, " N"],
) -> tuple[Comparator, Float[np.ndarray, " N"]]:
    """The proximal comparator, compiled, and its loss on every query.

    As a rule for p(item | query) it can be held against any learner, whatever tau that has: a
    regret counted against its losses differs between learners by their own losses alone.

    Args:
      theta_1: the start that it stays near.
      queries: all of them.
      labels: -1 pads.
      tau: its temperature, > 0.
      eta: how far it may go: the step size of the learner that it is proximal for, > 0.
      counts: how often each query is streamed; 0 leaves it out.

    Returns:
      the comparator, and its losses [N].
    """
    found, theirs = _solve(theta_1, queries, labels, tau, eta, jnp.asarray(counts, jnp.float32))
    return found, np.asarray(theirs)


@jax.jit
def _solve(theta_1, queries, labels, tau, eta, counts):
    found = proximal(queries, labels, theta_1, eta=eta, tau=tau, counts=counts)
    return found, losses(found.theta, queries, labels, tau=tau)


def margin(
    theta: Float[Array, "I d"], queries: Float[Array, "N d"], labels: Int[Array, "N L"]
) -> Float[Array, ""]:
    """By how much the label leads, over the query where it leads least; in units of theta . q.

    Positive means that the data are separable: the loss of ``s * theta`` falls to 0 as s grows,
    so Eq. (2) has no minimiser. Not positive proves nothing: another Theta may do better.
    For one label a query; labels beyond the first count as wrong items.

    Returns:
      [].
    """

    def lead(query_and_label):
        query, label = query_and_label
        z = theta @ query
        others = jnp.where(jnp.arange(z.shape[0]) == label, -jnp.inf, z)
        return z[label] - others.max()

    return lax.map(lead, (queries, labels[:, 0]), batch_size=256).min()


def _ones(queries):
    return jnp.ones(queries.shape[0], queries.dtype)


def _scale(queries, counts, tau):
    return jnp.sum(counts * jnp.linalg.norm(queries, axis=1)) / tau


def _minimise(
    objective: Callable, theta: Float[Array, "I d"], stop: Float[Array, ""], max_iterations: int
):
    """L-BFGS with a zoom line search until the gradient norm is at most ``stop``."""
    solver = optax.lbfgs(memory_size=_MEMORY)
    value_and_grad = optax.value_and_grad_from_state(objective)

    def unfinished(carry):
        _, _, _, gradient, iterations = carry
        return (optax.tree.norm(gradient) > stop) & (iterations < max_iterations)

    def step(carry):
        theta, state, value, gradient, iterations = carry
        updates, state = solver.update(
            gradient, state, theta, value=value, grad=gradient, value_fn=objective
        )
        theta = optax.apply_updates(theta, updates)
        value, gradient = value_and_grad(theta, state=state)
        return theta, state, value, gradient, iterations + 1

    value, gradient = jax.value_and_grad(objective)(theta)
    start = (theta, solver.init(theta), value, gradient, jnp.zeros((), jnp.int32))
    theta, _, value, gradient, iterations = lax.while_loop(unfinished, step, start)
    return theta, value, optax.tree.norm(gradient), iterations
