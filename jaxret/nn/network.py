"""What BERT, MPNet, DeBERTa and Qwen3 are to the heads built on them.

``positions [B, L]`` are 0, 1, .. by default; BERT adds an embedding for each, DeBERTa and Qwen3 see
their differences in every block, MPNet does both, and Qwen3 counts tokens only, so that padding may
come first.
``types [B, L]`` are 0, and 1 in the second text of a pair; BERT alone looks at them.

Letters: B texts, L tokens of V, N vectors from elsewhere, H width.
"""

from abc import abstractmethod
from typing import Any

from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxret.nn.layers import Compute
from jaxret.types import PRNGKey


class Network(nnx.Module):
    """A network that reads text. Called, it reads a text, or a pair of texts."""

    word: nnx.Embed  # [V, H], the tokens' vectors

    @abstractmethod
    def __init__(self, config: Any, compute: Compute, *, rngs: nnx.Rngs): ...

    @abstractmethod
    def embed(
        self,
        ids: Int[Array, "B L"],
        positions: Int[Array, "B L"] | None = None,
        types: Int[Array, "B L"] | None = None,
    ) -> Float[Array, "B L H"]:
        """Embeds tokens for the first block.

        Args:
          ids: token numbers [B, L] below V.
          positions: places in the text [B, L], from 0; None counts 0, 1, .., L - 1. BERT and MPNet
            add an embedding for each; the others need them in `run` alone.
          types: [B, L], 0, and 1 in the second text of a pair; None is 0 everywhere. BERT alone
            adds an embedding for each.

        Returns:
          what enters it [B, L, H].
        """

    @abstractmethod
    def inject(
        self, vectors: Float[Array, "B N H"], positions: Int[Array, "B N"] | None
    ) -> Float[Array, "B N H"]:
        """Embeds vectors from elsewhere, such as tools, for the first block.

        Args:
          vectors: of the width of the network [B, N, H].
          positions: places in the sequence [B, N], from 0, of which BERT and MPNet add embeddings;
            None adds none.

        Returns:
          what enters it [B, N, H].
        """

    @abstractmethod
    def run(
        self,
        x: Float[Array, "B L H"],
        mask: Bool[Array, "B L"],
        positions: Int[Array, "B L"] | None = None,
        *,
        key: PRNGKey | None = None,
    ) -> Float[Array, "B L H"]:
        """Runs the blocks.

        Args:
          x: embedded tokens and vectors [B, L, H].
          mask: [B, L], true where there is one; the others are seen by none.
          positions: places in the sequence [B, L], from 0. None counts 0, 1, .., L - 1; Qwen3 then
            counts only what the mask has. BERT has them in ``x`` already and looks at none; in
            DeBERTa two that are more than L apart give NaN.
          key: of the dropout; None for none.

        Returns:
          hidden states [B, L, H], which mean nothing where the mask is false.

        Raises:
          ValueError: where L exceeds the ``max_positions`` of BERT or MPNet.
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
