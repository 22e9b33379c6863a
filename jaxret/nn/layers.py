"""Layers of the networks, and the settings of their computation.

Parameters are float32 unless loaded as another dtype (`Backbone.load`). `Compute` has the other
settings: the dtype of matrix products, recomputation in the backward pass, and dropout.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from jaxret.runtime.validate import require
from jaxret.types import PRNGKey

INIT = nnx.initializers.normal(0.02)


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Settings of a network's computation, which change only rounding and dropout."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    remat: bool = False  # gradient checkpointing: only the inputs of blocks are stored
    dropout: float = 0.0  # applied if a key is given

    def __post_init__(self):
        require("dtype", self.dtype, "float32 or bfloat16", {"float32", "bfloat16"}.__contains__)
        require("dropout", self.dropout, "in [0, 1)", lambda rate: 0 <= rate < 1)


def linear(
    inputs: int, outputs: int, compute: Compute, rngs: nnx.Rngs, *, bias: bool = True
) -> nnx.Linear:
    """Make a layer x W + b, with W drawn from N(0, 0.02^2).

    Args:
      inputs: width of x.
      outputs: width of the result.
      compute: settings with the dtype of the product.
      rngs: random streams that draw W.
      bias: whether the layer has a bias b, initially 0.

    Returns:
      The layer, from [..., inputs] to [..., outputs].
    """
    dtype = jnp.dtype(compute.dtype)
    return nnx.Linear(inputs, outputs, use_bias=bias, kernel_init=INIT, dtype=dtype, rngs=rngs)


def norm(width: int, eps: float, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """Make a layer norm, computed in float32.

    Args:
      width: width of the normalised vectors.
      eps: constant added to the variance.
      rngs: random streams, which Flax requires; the initial scale is 1 and the bias 0.

    Returns:
      The layer, from [..., width] to [..., width].
    """
    dtype = jnp.float32
    return nnx.LayerNorm(width, epsilon=eps, use_fast_variance=False, dtype=dtype, rngs=rngs)


def rms_norm(width: int, eps: float, rngs: nnx.Rngs) -> nnx.RMSNorm:
    """Make a layer x / rms(x) times a scale, computed in float32.

    Args:
      width: width of the normalised vectors.
      eps: constant added to the mean square.
      rngs: random streams, which Flax requires; the initial scale is 1.

    Returns:
      The layer, from [..., width] to [..., width].
    """
    return nnx.RMSNorm(width, epsilon=eps, dtype=jnp.float32, rngs=rngs)


def gelu(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Compute x Phi(x); ``jax.nn.gelu`` uses erfc, which takes almost three times as long on CPU.

    Returns:
      An array of the shape of x [...].
    """
    return 0.5 * x * (1.0 + jax.lax.erf(x * 0.5**0.5))


def dropout(x: Float[Array, "*shape"], rate: float, key: PRNGKey | None) -> Float[Array, "*shape"]:
    """Set entries to 0 with probability ``rate`` and scale the others up.

    Args:
      x: array of any shape.
      rate: probability that an entry becomes 0, in [0, 1).
      key: random key; None: no dropout.

    Returns:
      An array of the shape of x [...].
    """
    if key is None or rate == 0:
        return x
    # 16 random bits per entry take half the time of the 32 bits of `jax.random.bernoulli`.
    bits = jax.random.bits(key, x.shape, jnp.uint16)
    return jnp.where(bits >= round(rate * 2**16), x / (1 - rate), 0)


def fold(key: PRNGKey | None, number: int) -> PRNGKey | None:
    """Fold a number into a key.

    Returns:
      A key [], or None if the key is None.
    """
    return None if key is None else jax.random.fold_in(key, number)


def attend(
    scores: Float[Array, "B heads L M"],
    v: Float[Array, "B heads M e"],
    mask: Bool[Array, "B M"],
    rate: float = 0.0,
    key: PRNGKey | None = None,
) -> Float[Array, "B heads L e"]:
    """Compute attention outputs, softmax(scores) v over the unmasked tokens.

    The softmax is normalised after the product with v, which on CPU is up to twice as fast as
    ``jax.nn.dot_product_attention`` at 256 tokens.

    Args:
      scores: scores of M tokens for each of L tokens [B, heads, L, M].
      v: values of the M tokens [B, heads, M, e].
      mask: [B, M], False for padding.
      rate: probability that a weight becomes 0, in [0, 1).
      key: random key of the dropout; None: no dropout.

    Returns:
      [B, heads, L, e].
    """
    scores = scores.astype(jnp.float32) + jnp.where(mask, 0.0, -1e30)[:, None, None, :]
    weights = jnp.exp(scores - jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True)))
    dropped = dropout(weights, rate, key).astype(v.dtype)
    mixed = jnp.einsum("bhqk,bhke->bhqe", dropped, v)
    return mixed / weights.sum(axis=-1, keepdims=True).astype(v.dtype)


def mean_pool(hidden: Float[Array, "B L H"], mask: Bool[Array, "B L"]) -> Float[Array, "B H"]:
    """Average over the unmasked tokens.

    Returns:
      [B, H].
    """
    weights = mask / mask.sum(axis=1, keepdims=True)
    return jnp.einsum("blh,bl->bh", hidden, weights)


def cls_pool(hidden: Float[Array, "B L H"], mask: Bool[Array, "B L"]) -> Float[Array, "B H"]:
    """Select the first token.

    Returns:
      [B, H].
    """
    return hidden[:, 0]


def last_pool(hidden: Float[Array, "B L H"], mask: Bool[Array, "B L"]) -> Float[Array, "B H"]:
    """Select the last unmasked token, with padding on either side.

    Returns:
      [B, H].
    """
    last = mask.shape[1] - 1 - jnp.argmax(mask[:, ::-1], axis=1)
    return jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0]
