"""Bayesian linear regression, an observation at a time: mean, root of the covariance, noise.

    y = w x + noise of variance s2,     w ~ N(mean, s2 R R^T),     s2 ~ inverse gamma(shape, rate)

    R R^T = (ridge I + sum x x^T)^-1
    R    <- R - R u u^T / (v + sqrt(v))         u = R^T x,  v = 1 + |u|^2

The last line is Potter's square root (1963) of Sherman and Morrison's formula. It costs m^2
products a round, R R^T never turns negative, and a draw of w is a product with R: no decomposition
is ever made. The noise is conjugate (Riquelme, Tucker and Snoek 2018); a learner with noise of its
own does not read it.

Letters: m features, n points.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxret.types import PRNGKey


class Posterior(NamedTuple):
    """What is known of the weights, and of the noise."""

    mean: Float[Array, " m"]
    root: Float[Array, "m m"]  # R
    shape: Float[Array, ""]
    rate: Float[Array, ""]


def prior(
    mean: Float[Array, " m"], ridge: float, shape: float = 1.0, rate: float = 1.0
) -> Posterior:
    """Before the first observation."""
    return Posterior(
        mean=mean,
        root=jnp.eye(len(mean), dtype=mean.dtype) / jnp.sqrt(ridge).astype(mean.dtype),
        shape=jnp.asarray(shape, mean.dtype),
        rate=jnp.asarray(rate, mean.dtype),
    )


def observe(posterior: Posterior, x: Float[Array, " m"], y: Float[Array, ""]) -> Posterior:
    """After one more observation."""
    u = posterior.root.T @ x
    along = posterior.root @ u  # covariance times x
    v = 1.0 + u @ u
    error = y - posterior.mean @ x
    return Posterior(
        mean=posterior.mean + along * (error / v),
        root=posterior.root - along[:, None] * (u / (v + jnp.sqrt(v)))[None, :],
        shape=posterior.shape + 0.5,
        rate=posterior.rate + 0.5 * error**2 / v,
    )


def deviations(posterior: Posterior, x: Float[Array, "n m"]) -> Float[Array, " n"]:
    """``sqrt(x^T R R^T x)`` of every point: n m^2 products.

    Returns:
      [n].
    """
    return jnp.linalg.norm(x @ posterior.root, axis=1)


def draw(posterior: Posterior, key: PRNGKey, scale: Float[Array, ""] | float) -> Float[Array, " m"]:
    """Weights from ``N(mean, scale^2 R R^T)``. ``key`` is consumed.

    Returns:
      [m].
    """
    noise = jax.random.normal(key, posterior.mean.shape, posterior.mean.dtype)
    return posterior.mean + scale * (posterior.root @ noise)


def draw_noise(posterior: Posterior, key: PRNGKey) -> Float[Array, ""]:
    """A standard deviation of the noise, s. ``key`` is consumed.

    Returns:
      [].
    """
    gamma = jax.random.gamma(key, posterior.shape, dtype=posterior.mean.dtype)
    return jnp.sqrt(posterior.rate / gamma)
