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

        Returns:
          what enters it [B, L, H].
        """

    @abstractmethod
    def inject(
        self, vectors: Float[Array, "B N H"], positions: Int[Array, "B N"] | None
    ) -> Float[Array, "B N H"]:
        """Embeds vectors from elsewhere, such as tools, for the first block.

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

        Returns:
          hidden states [B, L, H], which mean nothing where the mask is false.
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
