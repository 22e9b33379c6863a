"""What somebody's word is worth: two numbers that calibrate a probability, learnt from bits online.

    P(y = 1) = sigmoid(u logit p + v)           u = 1, v = 0 at first

After Platt (1999), by a Newton step of the logistic loss a round; ``precision`` begins as that of a
Gaussian prior and grows by what each bit tells.

Letters: G who speak (experts of a mixture), k items shown.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

SAID = (1e-12, 1 - 1e-6)  # between these an expert's softmax is kept, so that its logit is finite
LEAST = np.array([0.1, -np.inf], np.float32)  # of u: no expert's order is ever turned round


class Calibration(NamedTuple):
    """How each expert's word is to be taken."""

    line: Float[Array, "G 2"]  # u, v
    precision: Float[Array, "G 2 2"]  # of what is known of them


def at_its_word(experts: int, trust: float, dtype) -> Calibration:
    """u = 1 and v = 0 of everyone who speaks."""
    line = jnp.tile(jnp.array([1.0, 0.0], dtype), (experts, 1))
    precision = jnp.tile(trust * jnp.eye(2, dtype=dtype), (experts, 1, 1))
    return Calibration(line=line, precision=precision)


def recalibrated(
    calibration: Calibration, said: Float[Array, "*k"], y: Float[Array, "*k"]
) -> Calibration:
    """The u and v of one who spoke after a round: a Newton step of the logistic loss."""
    line, precision = calibration
    x = jnp.stack([said, jnp.ones_like(said)], axis=-1).reshape(-1, 2)  # [k, 2]
    p = believed(line, said).reshape(-1)
    precision = precision + jnp.einsum("k,ki,kj->ij", p * (1 - p), x, x)
    (a, b), (_, d) = precision
    along, down = x.T @ (jnp.reshape(y, -1) - p)
    step = jnp.stack([d * along - b * down, a * down - b * along]) / (a * d - b * b)
    return Calibration(jnp.maximum(line + step, LEAST), precision)


def believed(line: Float[Array, " 2"], said: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """What somebody's word is worth: ``sigmoid(u said + v)``.

    Args:
      line: u, v.
      said: logits of what was said.

    Returns:
      probabilities [...], in the shape of ``said``.
    """
    return jax.nn.sigmoid(line[0] * said + line[1])


def logit(p: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """``ln(p / (1 - p))``, of what is not quite 0 or 1.

    Returns:
      logits [...], in the shape of ``p``.
    """
    p = jnp.clip(p, *SAID)
    return jnp.log(p) - jnp.log1p(-p)
