"""Online recalibration of a predicted probability by the bits that follow.

    recalibrate(p) = sigmoid(a ln p - b ln(1 - p) + c),    a, b > 0          Kull et al. (2017)

A weighted mean of calibrated probabilities is not calibrated: it is nearer to 1/2 than it should be
(Ranjan and Gneiting 2010), and with a, b and c it can be corrected at both ends separately. The
three numbers are learnt by online Newton steps on the logistic loss of the bits. Their precision
decays towards the prior, since the predictions of a learner change while it learns. The order of
predictions is unchanged, since a and b are positive.

`TRUST` and `FORGET` were chosen on seeds 100 to 102 of DeskBank and UltraTool.

Letters: k items shown.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

RANGE = (1e-4, 1 - 1e-4)  # clips predictions, to keep their logarithms finite
TRUST = 2.0  # precision of the Gaussian prior at a = b = 1 and c = 0
FORGET = 0.005  # share of the precision that returns to the prior each round
LEAST = np.array([0.01, 0.01, -np.inf], np.float32)  # minima of a, b and c


class Recalibration(NamedTuple):
    """Three numbers that recalibrate a probability.

    Attributes:
      line: a, b and c [3].
      precision: precision of a Gaussian posterior of a, b and c [3, 3].
    """

    line: Float[Array, " 3"]
    precision: Float[Array, "3 3"]


def first_recalibration(dtype: Any) -> Recalibration:
    """Return a = b = 1 and c = 0, which leave probabilities as they are.

    Args:
      dtype: dtype of the arrays.
    """
    return Recalibration(jnp.array([1.0, 1.0, 0.0], dtype), TRUST * jnp.eye(3, dtype=dtype))


def recalibrate(now: Recalibration, p: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Return ``sigmoid(a ln p - b ln(1 - p) + c)``, with p clipped to `RANGE`.

    Returns:
      probabilities [...].
    """
    return jax.nn.sigmoid(_features(p) @ now.line)


def learn(now: Recalibration, p: Float[Array, "*k"], y: Float[Array, "*k"]) -> Recalibration:
    """Move a, b and c by a Newton step of the logistic loss, and discount past precision.

    Args:
      now: numbers before the round.
      p: predicted probabilities of the items shown [] or [k].
      y: their rewards [] or [k].
    """
    x = _features(p).reshape(-1, 3)
    predicted = recalibrate(now, p).reshape(-1)
    precision = now.precision + jnp.einsum("k,ki,kj->ij", predicted * (1 - predicted), x, x)
    step = _solve(precision, x.T @ (jnp.reshape(y, -1) - predicted))
    prior = TRUST * jnp.eye(3, dtype=precision.dtype)
    precision = (1 - FORGET) * precision + FORGET * prior
    return Recalibration(jnp.maximum(now.line + step, LEAST), precision)


def _features(p: Float[Array, "*n"]) -> Float[Array, "*n 3"]:
    p = jnp.clip(p, *RANGE)
    return jnp.stack([jnp.log(p), -jnp.log1p(-p), jnp.ones_like(p)], axis=-1)


def _solve(matrix: Float[Array, "3 3"], right: Float[Array, " 3"]) -> Float[Array, " 3"]:
    """Solve three equations with a positive definite matrix by Gauss-Jordan elimination."""

    def eliminate(i, rows):
        pivot = rows[i] / rows[i, i]
        others = rows - jnp.outer(rows[:, i], pivot)
        return others.at[i].set(pivot)

    return lax.fori_loop(0, 3, eliminate, jnp.column_stack([matrix, right]))[:, 3]
