"""The pre-norm block of a decoder such as Qwen3.

    x = x + W_o attention(RMS(x));  x = x + W_down (silu(W_gate y) * W_up y) with y = RMS(x)

Queries and keys are normalised per head, then rotated by their positions (RoPE, Su et al. 2021,
Section 3.2). A group of query heads shares one head of keys and values (Ainslie et al. 2023).
Attention is causal. No map has a bias.

Letters: B texts, L tokens per text, H hidden width, e width of a head, K heads of keys and values.
"""

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxret.nn.layers import Compute, attend, dropout, fold, linear, rms_norm
from jaxret.types import PRNGKey

Turns = tuple[Float[Array, "B L 1 e/2"], Float[Array, "B L 1 e/2"]]


class Sizes(Protocol):
    """The sizes that a block reads from a configuration."""

    @property
    def hidden(self) -> int: ...
    @property
    def intermediate(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_width(self) -> int: ...
    @property
    def eps(self) -> float: ...


class DecoderBlock(nnx.Module):
    """A block, with dropout if it gets a key; ``turns`` are the `angles` of the positions."""

    def __init__(self, config: Sizes, compute: Compute, *, rngs: nnx.Rngs):
        def to(inputs, outputs):
            return linear(inputs, outputs, compute, rngs, bias=False)

        width, e = config.hidden, config.head_width
        self.kv_heads, self.head_width, self.rate = config.kv_heads, e, compute.dropout
        self.attention_norm = rms_norm(width, config.eps, rngs)
        self.query = to(width, config.heads * e)
        self.key = to(width, config.kv_heads * e)
        self.value = to(width, config.kv_heads * e)
        self.out = to(config.heads * e, width)
        self.query_norm, self.key_norm = (rms_norm(e, config.eps, rngs) for _ in range(2))
        self.mlp_norm = rms_norm(width, config.eps, rngs)
        self.gate, self.up = (to(width, config.intermediate) for _ in range(2))
        self.down = to(config.intermediate, width)

    def __call__(
        self,
        x: Float[Array, "B*L H"],
        mask: Bool[Array, "B L"],
        turns: Turns,
        key: PRNGKey | None = None,
    ) -> Float[Array, "B*L H"]:
        mixed = self.attention(self.attention_norm(x), mask, turns, fold(key, 0))
        x = x + dropout(self.out(mixed), self.rate, fold(key, 1))
        y = self.mlp_norm(x)
        risen = jax.nn.silu(self.gate(y)) * self.up(y)
        return x + dropout(self.down(risen), self.rate, fold(key, 2))

    def attention(
        self,
        x: Float[Array, "B*L H"],
        mask: Bool[Array, "B L"],
        turns: Turns,
        key: PRNGKey | None,
    ) -> Float[Array, "B*L heads*e"]:
        """Compute causal attention, with groups of query heads per head of keys and values.

        Args:
          x: normalised tokens [B L, H].
          mask: [B, L], False for padding.
          turns: cosines and sines of the angles of the positions, both [B, L, 1, e / 2].
          key: random key of the dropout; None: no dropout.

        Returns:
          [B L, heads e].
        """
        heads = (*mask.shape, -1, self.head_width)
        q, k, v = (f(x).reshape(heads) for f in (self.query, self.key, self.value))
        q = turn(self.query_norm(q), turns).astype(v.dtype)
        k = turn(self.key_norm(k), turns).astype(v.dtype)
        # The queries of a group are rows of one product, so keys and values need no copies.
        q = q.reshape(*mask.shape, self.kv_heads, -1, self.head_width).transpose(0, 2, 3, 1, 4)
        batch, kv_heads, group, length, _ = q.shape
        rows = q.reshape(batch, kv_heads, group * length, -1) * self.head_width**-0.5
        scores = jnp.einsum("bkqe,bmke->bkqm", rows, k) + _later(length, group)
        mixed = attend(scores, v.swapaxes(1, 2), mask, self.rate, key).reshape(q.shape)
        return mixed.transpose(0, 3, 1, 2, 4).reshape(len(x), -1)


def angles(positions: Int[Array, "B L"], width: int, theta: float) -> Turns:
    """Compute the angles position * theta^(-2 i / e), for each i of the e / 2 pairs of a head.

    Args:
      positions: positions in the text [B, L], from 0.
      width: e, the width of a head; even.
      theta: base; with a larger base the later pairs rotate more slowly.

    Returns:
      Cosines and sines of the angles, both [B, L, 1, e / 2].
    """
    speed = theta ** (-jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    angle = positions[:, :, None, None].astype(jnp.float32) * speed[None, None, None]
    return jnp.cos(angle), jnp.sin(angle)


def turn(y: Float[Array, "B L heads e"], turns: Turns) -> Float[Array, "B L heads e"]:
    """Rotate each pair (y_i, y_{i + e/2}) by its angle, so that q . k depends on differences.

    Returns:
      Rotated ``y`` [B, L, heads, e].
    """
    (cos, sin), (a, b) = turns, jnp.split(y, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def _later(length, group):
    """Return a causal mask with -1e30 for later tokens, finite so that no row becomes NaN."""
    positions = jnp.arange(length)
    later = jnp.where(positions[None] > positions[:, None], -1e30, 0.0)
    return jnp.tile(later, (group, 1))[None, None]
