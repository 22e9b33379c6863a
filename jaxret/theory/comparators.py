"""Comparators of regret: the optimum in hindsight, in a ball, and the proximal comparator.

    hindsight   Theta* = argmin sum_t l_t(Theta)                                ORAG Eq. (2)
    in_ball     argmin of sum_t l_t(Theta) over ||theta_i|| <= R
    proximal    Theta° = argmin sum_t l_t(Theta) + ||Theta - Theta_1||^2 / (2 eta)     (ours)

with the loss ``l(Theta; (q, i*)) = -log softmax(Theta q / tau)_{i*}``, averaged over the labels of
a query with several labels, as in a trace.

Theta* need not exist. If some Theta ranks the label of every query strictly first (`margin` > 0),
scaling Theta up drives the loss to 0, which no Theta attains, and the norm grows with every
iteration. A tool that is no query's label has the same effect. If Theta* exists it is not unique
(adding one vector to every row changes no loss). The rows of a gradient sum to zero, so a search
from Theta_1 keeps the sum of the rows: of these minimisers it finds the nearest to Theta_1.

The optimum in a ball always exists, and the ball does not depend on the horizon, so regret against
this optimum can grow like sqrt(T). It is the comparator of Algorithm 1 with a projection,
found by accelerated projected gradient descent, restarted whenever the objective rises. For a
convex loss with gradient G the best linear improvement within the set certifies the result:

    sum_t l_t(Theta) - minimum  <=  <G, Theta> + R sum_i ||G_i||

Theta° always exists, is unique, and gives Theorem 5.1 its smallest right-hand side: the theorem
holds for any comparator U and bounds the loss of the run by
``sum_t l_t(U) + ||Theta_1 - U||^2 / (2 eta) + variance``, which is smallest at U = Theta°. The
objective is strongly convex with modulus 1 / eta, so a gradient of norm g certifies

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

from jaxret.rules.projections import ball, project
from jaxret.runtime.validate import require
from jaxret.simulation.trace import measure

_CHUNK = 256  # queries whose logits are in memory together
_MEMORY = 10  # pairs of past steps and gradients that L-BFGS keeps, each [I, d] twice


class Comparator(NamedTuple):
    """A minimiser and the accuracy of the search.

    ``distance`` and ``gap`` are derived from ``gradient_norm``, so rounding limits them. They are
    infinite if nothing is certified. The defaults are for a Theta that was given, not found.
    """

    theta: Float[Array, "I d"]
    loss: Float[Array, ""] | float = np.nan  # sum_t l_t(theta), without the proximal term
    objective: Float[Array, ""] | float = np.nan  # the minimised objective
    gradient_norm: Float[Array, ""] | float = np.nan
    iterations: Int[Array, ""] | int = 0
    converged: Bool[Array, ""] | bool = True
    distance: Float[Array, ""] | float = np.inf  # largest Frobenius distance from the minimiser
    gap: Float[Array, ""] | float = np.inf  # largest difference of the objective from its minimum


@jax.jit
def losses(
    theta: Float[Array, "I d"],
    queries: Float[Array, "N d"],
    labels: Int[Array, "N L"],
    *,
    tau: float | Float[Array, ""],
    offsets: Float[Array, "N I"] | None = None,
) -> Float[Array, " N"]:
    """Compute the loss of one Theta on every query, differentiable in ``theta``.

    Args:
      theta: item embeddings [I, d].
      queries: [N, d].
      labels: [N, L], -1 pads; a query without labels has the loss 0.
      tau: temperature, > 0.
      offsets: added to the logits of each query [N, I]; None: nothing is.

    Returns:
      losses [N].
    """

    @jax.checkpoint  # recomputes the logits of a chunk, to save memory
    def loss(line):
        query, its_labels, its_offsets = line
        z = theta @ query / tau
        z = z if offsets is None else z + its_offsets
        return measure(z, its_labels, None).loss

    return lax.map(loss, (queries, labels, offsets), batch_size=_CHUNK)


def hindsight(
    queries: Float[Array, "N d"],
    labels: Int[Array, "N L"],
    *,
    tau: float | Float[Array, ""],
    theta_0: Float[Array, "I d"],
    counts: Float[Array, " N"] | None = None,
    tolerance: float = 1e-4,
) -> Comparator:
    """Minimise the loss of the whole stream without constraints.

    Args:
      queries: the different queries [N, d].
      labels: [N, L], -1 pads.
      tau: temperature, > 0.
      theta_0: start of the search [I, d]; from Theta_1 the nearest of equal minimisers is found.
      counts: number of exposures of each query [N]; None: one each.
      tolerance: the search stops at ``||gradient|| <= tolerance * sum_t ||q_t|| / tau``. Without
        ``tolerance`` the right side times sqrt(2) bounds every gradient.

    Returns:
      The minimiser, without certificates.
    """
    counts = _ones(queries) if counts is None else counts
    stop = tolerance * _scale(queries, counts, tau)

    def objective(theta):
        return jnp.sum(counts * losses(theta, queries, labels, tau=tau))

    theta, value, norm, iterations = _minimise(objective, theta_0, stop, 1000)
    return Comparator(
        theta=theta,
        loss=value,
        objective=value,
        gradient_norm=norm,
        iterations=iterations,
        converged=norm <= stop,
    )


def in_ball(
    queries: Float[Array, "N d"],
    labels: Int[Array, "N L"],
    *,
    tau: float | Float[Array, ""],
    radius: float,
    theta_0: Float[Array, "I d"],
    counts: Float[Array, " N"] | None = None,
    offsets: Float[Array, "N I"] | None = None,
    tolerance: float = 1e-4,
    max_iterations: int = 5000,
) -> Comparator:
    """Minimise the loss of the whole stream over rows of length at most ``radius``.

    Args:
      queries: the different queries [N, d].
      labels: [N, L], -1 pads.
      tau: temperature, > 0.
      radius: R, > 0.
      theta_0: start of the search [I, d].
      counts: number of exposures of each query [N]; None: one each.
      offsets: added to the logits of each query [N, I]; None: nothing is.
      tolerance: certified distance of the mean loss per round from its minimum at which the search
        stops, > 0.
      max_iterations: largest number of gradient steps.

    Returns:
      The minimiser; ``gap`` is the certificate, and ``distance`` is infinite, since the minimiser
      need not be unique.

    Raises:
      ValueError: if the tolerance is not positive.
    """
    require("tolerance", tolerance, "> 0", lambda x: x > 0)
    counts = _ones(queries) if counts is None else counts
    rounds = counts.sum()
    inside = ball(radius=radius)
    # A softmax over logits has curvature at most 1/2, and logits are linear in Theta.
    curvature = jnp.linalg.eigvalsh((queries * counts[:, None]).T @ queries)[-1] / (2 * tau**2)

    def objective(theta):
        return jnp.sum(counts * losses(theta, queries, labels, tau=tau, offsets=offsets))

    def certificate(theta, gradient):
        lengths = jnp.linalg.norm(gradient, axis=1)
        return jnp.sum(gradient * theta) + radius * jnp.sum(lengths)

    def unfinished(carry):
        *_, gap, iterations = carry
        return (gap > tolerance * rounds) & (iterations < max_iterations)

    def step(carry):
        theta, ahead, momentum, value, _, _, iterations = carry
        moved = project(inside, ahead - jax.grad(objective)(ahead) / curvature)
        new_value, gradient = jax.value_and_grad(objective)(moved)
        rises = new_value > value
        momentum = jnp.where(rises, 1.0, momentum)
        following = (1 + jnp.sqrt(1 + 4 * momentum**2)) / 2
        push = jnp.where(rises, 0.0, (momentum - 1) / following)
        ahead = moved + push * (moved - theta)
        gap = certificate(moved, gradient)
        return moved, ahead, following, new_value, gradient, gap, iterations + 1

    theta = project(inside, theta_0)
    value, gradient = jax.value_and_grad(objective)(theta)
    one = jnp.ones_like(value)
    start = (theta, theta, one, value, gradient, certificate(theta, gradient), 0)
    theta, _, _, value, gradient, gap, iterations = lax.while_loop(unfinished, step, start)
    return Comparator(
        theta=theta,
        loss=value,
        objective=value,
        gradient_norm=jnp.linalg.norm(gradient),
        iterations=jnp.asarray(iterations),
        converged=gap <= tolerance * rounds,
        gap=gap,
    )


def proximal(
    queries: Float[Array, "N d"],
    labels: Int[Array, "N L"],
    theta_1: Float[Array, "I d"],
    *,
    eta: float | Float[Array, ""],
    tau: float | Float[Array, ""],
    counts: Float[Array, " N"] | None = None,
    offsets: Float[Array, "N I"] | None = None,
    tolerance: float = 1e-5,
    max_iterations: int = 200,
) -> Comparator:
    """Find the comparator that makes Theorem 5.1 tightest for a run of step size ``eta``.

    Args:
      queries: the different queries [N, d].
      labels: [N, L], -1 pads.
      theta_1: start of the run [I, d], and of the search, since it is close to the minimiser.
      eta: step size of the run, > 0.
      tau: temperature, > 0.
      counts: number of exposures of each query [N]; None: one each.
      offsets: added to the logits of each query [N, I]; None: nothing is.
      tolerance: the search stops at ``||gradient|| <= tolerance * sum_t ||q_t|| / tau``. float32
        reaches about 1e-6 (below that the search runs to its last iteration), float64
        (`jax.enable_x64`) about 1e-14.
      max_iterations: largest number of L-BFGS iterations.

    Returns:
      The minimiser, with both certificates.

    Raises:
      ValueError: if the step size is not positive.
    """
    require("eta", eta, "> 0", lambda x: x > 0)
    counts = _ones(queries) if counts is None else counts
    stop = tolerance * _scale(queries, counts, tau)

    def penalty(theta):
        return jnp.sum((theta - theta_1) ** 2) / (2 * eta)

    def objective(theta):
        own = losses(theta, queries, labels, tau=tau, offsets=offsets)
        return jnp.sum(counts * own) + penalty(theta)

    theta, value, norm, iterations = _minimise(objective, theta_1, stop, max_iterations)
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
    """Find the proximal comparator and its loss on every query, in one compiled program.

    The comparator is a model of p(item | query), so it can be compared with any learner of any
    temperature: the regrets of two learners against it differ only by their losses.

    Args:
      theta_1: start of the run [I, d].
      queries: all different queries [N, d].
      labels: [N, L], -1 pads.
      tau: temperature of the comparator, > 0.
      eta: step size of the learner that the comparator is proximal for, > 0.
      counts: number of exposures of each query [N]; a query with 0 is left out.

    Returns:
      the comparator, and its losses [N].
    """
    found, its_losses = _solve(theta_1, queries, labels, tau, eta, jnp.asarray(counts, jnp.float32))
    return found, np.asarray(its_losses)


@jax.jit
def _solve(theta_1, queries, labels, tau, eta, counts):
    found = proximal(queries, labels, theta_1, eta=eta, tau=tau, counts=counts)
    return found, losses(found.theta, queries, labels, tau=tau)


def margin(
    theta: Float[Array, "I d"], queries: Float[Array, "N d"], labels: Int[Array, "N L"]
) -> Float[Array, ""]:
    """Compute the smallest lead of a label over all other items, in units of theta . q.

    A positive margin means that the data are separable: the loss of ``s * theta`` falls to 0 as s
    grows, so Eq. (2) has no minimiser. A negative margin proves nothing, since another Theta may
    have a positive one.

    Args:
      theta: item embeddings [I, d].
      queries: [N, d].
      labels: [N, L]; the first is the label, the others count as wrong items.

    Returns:
      the margin [].
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
    """Run L-BFGS with a zoom line search until the gradient norm is at most ``stop``."""
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
