"""The post-norm block of BERT, MPNet and DeBERTa: attention and an MLP.

    x = LN(x + W_o attention(x));  x = LN(x + W_2 gelu(W_1 x))

The networks differ only in the attention scores, the method to override. Tokens have the shape
[B*L, H], because on CPU gradients are a sixth faster than with [B, L, H].

Letters: B texts, L tokens per text, H hidden width, e width of a head.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from jaxret.nn.layers import Compute, attend, dropout, fold, gelu, linear, norm
from jaxret.types import PRNGKey

Context: TypeAlias = tuple[Any, ...]  # arrays, or None


class Block(nnx.Module):
    """A block, with dropout if it gets a key. The config is of BERT, MPNet or DeBERTa."""

    def __init__(self, config: Any, compute: Compute, *, rngs: nnx.Rngs):
        width = config.hidden
        self.heads, self.rate = config.heads, compute.dropout
        self.query, self.key, self.value, self.out = (
            linear(width, width, compute, rngs) for _ in range(4)
        )
        self.attention_norm = norm(width, config.eps, rngs)
        self.up = linear(width, config.intermediate, compute, rngs)
        self.down = linear(config.intermediate, width, compute, rngs)
        self.mlp_norm = norm(width, config.eps, rngs)

    def __call__(
        self,
        x: Float[Array, "B*L H"],
        mask: Bool[Array, "B L"],
        context: Context = (),
        key: PRNGKey | None = None,
    ) -> Float[Array, "B*L H"]:
        q, k, v = (self.split(f(x), *mask.shape) for f in (self.query, self.key, self.value))
        scores = self.scores(q, k, context, fold(key, 3))
        mixed = attend(scores, v.swapaxes(1, 2), mask, self.rate, fold(key, 0)).swapaxes(1, 2)
        attended = dropout(self.out(mixed.reshape(x.shape)), self.rate, fold(key, 1))
        x = self.attention_norm(x + attended)
        return self.mlp_norm(x + dropout(self.down(gelu(self.up(x))), self.rate, fold(key, 2)))

    def scores(
        self,
        q: Float[Array, "B L heads e"],
        k: Float[Array, "B L heads e"],
        context: Context,
        key: PRNGKey | None = None,
    ) -> Float[Array, "B heads L L"]:
        """Compute q k^T / sqrt(e), to which other networks add terms from the context.

        Args:
          q: queries [B, L, heads, e].
          k: keys [B, L, heads, e].
          context: further inputs, such as distances; empty in BERT.
          key: random key of the dropout on the context; None: no dropout.

        Returns:
          A score for each pair of tokens [B, heads, L, L].
        """
        return jnp.einsum("bqhe,bkhe->bhqk", q * q.shape[-1] ** -0.5, k)

    def split(self, y: Float[Array, "rows H"], *rows: int) -> Float[Array, "*rows heads e"]:
        """Split the width into heads.

        Returns:
          ``y`` as [*rows, heads, e].
        """
        return y.reshape(*rows, self.heads, -1)


def run_blocks(
    blocks: Mapping[str, nnx.Module],
    x: Float[Array, "B L H"],
    mask: Bool[Array, "B L"],
    compute: Compute,
    context: Context = (),
    *,
    key: PRNGKey | None = None,
) -> Float[Array, "B L H"]:
    """Run a stack of blocks.

    Args:
      blocks: blocks by number, "0", "1", ..; each is called with tokens, mask, context and key.
      x: inputs of the first block [B, L, H].
      mask: [B, L], False for padding.
      compute: rate of the dropout before the first block, and whether to recompute blocks in the
        backward pass.
      context: further inputs of every block, such as distances.
      key: random key of the dropout; None: no dropout.

    Returns:
      Hidden states [B, L, H].
    """
    x, shape = dropout(x, compute.dropout, fold(key, len(blocks))), x.shape
    x = x.reshape(-1, shape[-1])
    call = type(blocks["0"]).__call__
    step = nnx.remat(call) if compute.remat else call
    for i in range(len(blocks)):  # nnx.Dict iterates as '0', '1', '10', '2', ...
        x = step(blocks[str(i)], x, mask, context, fold(key, i))
    return x.reshape(shape)
