"""The optimum in hindsight among rows that lie in a ball.

    in_ball     argmin of sum_t l_t(Theta) over ||theta_i|| <= R

With its optional projection Algorithm 1 competes with these. The set is compact, so the minimum
is attained even where the data are separable and Theta* is not (`jaxret.theory.comparators`),
and it does not move with the horizon as the proximal comparator does: against it regret can be
seen to grow like sqrt(T).

Accelerated projected gradient, started again whenever the objective rises. For a convex loss
with gradient G the best linear improvement within the set certifies the result:

    sum_t l_t(Theta) - minimum  <=  <G, Theta> + R sum_i ||G_i||

Letters: I items, d width, N different queries, L labels.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret.rules.projections import ball, project
from jaxret.runtime.validate import require
from jaxret.theory.comparators import Comparator
from jaxret.theory.regret import losses


def in_ball(
    queries: Float[Array, "N d"],
    labels: Int[Array, "N L"],
    *,
    tau: float | Float[Array, ""],
    radius: float,
    theta_0: Float[Array, "I d"],
    counts: Float[Array, " N"] | None = None,
    tolerance: float = 1e-4,
    max_iterations: int = 5000,
) -> Comparator:
    """Minimises the loss of the whole stream over rows of length at most ``radius``.

    Args:
      queries: the different queries.
      labels: [N, L], -1 pads.
      tau: temperature, > 0.
      radius: R, > 0.
      theta_0: where to start.
      counts: how often each query came; None means once.
      tolerance: stops when the loss a round is certified to be this near to the minimum.
      max_iterations: of the gradient method.

    Returns:
      a `Comparator` whose ``gap`` is the certificate; ``distance`` is infinite, since the
      minimiser need not be unique.
    """
    require("tolerance", tolerance, "> 0", lambda x: x > 0)
    counts = jnp.ones(len(queries), queries.dtype) if counts is None else counts
    rounds = counts.sum()
    inside = ball(radius=radius)
    # A softmax over logits has curvature at most 1/2, and logits are linear in Theta.
    curvature = jnp.linalg.eigvalsh((queries * counts[:, None]).T @ queries)[-1] / (2 * tau**2)

    def objective(theta):
        return jnp.sum(counts * losses(theta, queries, labels, tau=tau))

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
        distance=jnp.full_like(gap, jnp.inf),
        gap=gap,
    )
