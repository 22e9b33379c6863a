"""The common interface of BERT, MPNet, DeBERTa and Qwen3.

``positions [B, L]`` are 0, 1, .. by default. BERT adds an embedding of each position, the blocks of
DeBERTa and Qwen3 use their differences, MPNet does both, and Qwen3 does not count padding, which
may come first. ``types [B, L]`` are 0, and 1 in the second text of a pair; only BERT uses them.

Letters: B texts, L tokens of V, N vectors from elsewhere, H width.
"""

from abc import abstractmethod
from functools import lru_cache
from typing import Any

from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxret.nn.functional import Module, functionalize
from jaxret.nn.layers import Compute
from jaxret.types import PRNGKey


class Network(nnx.Module):
    """A network that reads a text or a pair of texts."""

    word: nnx.Embed  # [V, H], the token embeddings

    @abstractmethod
    def __init__(self, config: Any, compute: Compute, *, rngs: nnx.Rngs): ...

    @classmethod
    def functions(cls, config: Any, compute: Compute = Compute()) -> Module:
        """Build ``apply(params, ids, mask, key=None) -> hidden states``, as pure functions.

        ``ids [B, L]`` are token ids below V, and ``mask [B, L]`` is False for padding. The
        result ``[B, L, H]`` is undefined for padding. With a key there is dropout. Parameters are
        float32; ``init`` draws them from N(0, 0.02^2).
        """
        return _functions(cls, config, compute)

    @abstractmethod
    def embed(
        self,
        ids: Int[Array, "B L"],
        positions: Int[Array, "B L"] | None = None,
        types: Int[Array, "B L"] | None = None,
    ) -> Float[Array, "B L H"]:
        """Embed tokens for the first block.

        Args:
          ids: token ids [B, L] below V.
          positions: positions in the text [B, L], from 0; None: 0, 1, .., L - 1. BERT and MPNet
            add their embeddings; the others need them only in `run`.
          types: [B, L], 0, and 1 in the second text of a pair; None: 0. Only BERT has them.

        Returns:
          Inputs of the first block [B, L, H].
        """

    def inject(
        self, vectors: Float[Array, "B N H"], positions: Int[Array, "B N"]
    ) -> Float[Array, "B N H"]:
        """Embed vectors that are not tokens, such as tools, for the first block.

        Args:
          vectors: vectors of the width of the network [B, N, H].
          positions: positions in the sequence [B, N], from 0, of which BERT and MPNet add the
            embeddings; the others return the vectors unchanged.

        Returns:
          Inputs of the first block [B, N, H].
        """
        return vectors

    @abstractmethod
    def run(
        self,
        x: Float[Array, "B L H"],
        mask: Bool[Array, "B L"],
        positions: Int[Array, "B L"] | None = None,
        *,
        key: PRNGKey | None = None,
    ) -> Float[Array, "B L H"]:
        """Run the blocks.

        Args:
          x: embedded tokens and vectors [B, L, H].
          mask: [B, L], False for padding, which is not attended to.
          positions: positions in the sequence [B, L], from 0. None: 0, 1, .., L - 1, in Qwen3
            without counting padding. BERT ignores them, since ``x`` contains their embeddings; in
            DeBERTa differences above L give NaN.
          key: random key of the dropout; None: no dropout.

        Returns:
          Hidden states [B, L, H], undefined for padding.

        Raises:
          ValueError: if L exceeds the ``max_positions`` of BERT or MPNet.
        """

    def __call__(
        self,
        ids: Int[Array, "B L"],
        mask: Bool[Array, "B L"],
        *,
        types: Int[Array, "B L"] | None = None,
        key: PRNGKey | None = None,
    ) -> Float[Array, "B L H"]:
        return self.run(self.embed(ids, types=types), mask, key=key)


@lru_cache(maxsize=32)  # tracing a constructor takes a second, and `jit` keys programs by function
def _functions(network: type[Network], config: Any, compute: Compute) -> Module:
    return functionalize(lambda rngs: network(config, compute, rngs=rngs))
