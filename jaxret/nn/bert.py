"""BERT as a text encoder: all-MiniLM, E5 and their relatives.

    x = LN(word + position + type)
    x = LN(x + attention(x));  x = LN(x + W_2 gelu(W_1 x))      a block, normalised after the sum

with the exact (erf) GELU and scores divided by sqrt(H / heads). Devlin et al. 2019, in the layout
of the HuggingFace checkpoints. The type is 0, and 1 in the second text of a pair.

Letters: B texts, L tokens per text, H hidden width, V vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxret.nn.block import Block, Context, run_blocks
from jaxret.nn.checkpoints import KeyTable, linear_keys, norm_keys
from jaxret.nn.config_json import read_json, read_sizes, require_settings
from jaxret.nn.layers import INIT, Compute, norm
from jaxret.nn.network import Network
from jaxret.types import PRNGKey

_LAYER = r"encoder\.layer\.(\d+)\."

#: Names in a HuggingFace checkpoint -> paths in our parameters; see `checkpoints.convert`.
KEYS: KeyTable = {
    r"embeddings\.(word|position|token_type)_embeddings\.weight": (r"\1/embedding", False),
    **norm_keys(r"embeddings\.LayerNorm", "norm"),
    **linear_keys(_LAYER + r"attention\.self\.(query|key|value)", r"blocks/\1/\2"),
    **linear_keys(_LAYER + r"attention\.output\.dense", r"blocks/\1/out"),
    **norm_keys(_LAYER + r"attention\.output\.LayerNorm", r"blocks/\1/attention_norm"),
    **linear_keys(_LAYER + r"intermediate\.dense", r"blocks/\1/up"),
    **linear_keys(_LAYER + r"output\.dense", r"blocks/\1/down"),
    **norm_keys(_LAYER + r"output\.LayerNorm", r"blocks/\1/mlp_norm"),
    r"embeddings\.position_ids": None,  # 0, 1, 2, ...
    r"(cls|pooler|classifier)\..*": None,  # heads
}


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The sizes of a BERT, with the names of the paper rather than of config.json."""

    vocab_size: int
    hidden: int  # H
    layers: int
    heads: int
    intermediate: int
    max_positions: int
    type_vocab: int
    eps: float

    @classmethod
    def from_json(cls, source: Path | Mapping[str, Any]) -> Self:
        """Read a HuggingFace ``config.json``, or the dict that it holds.

        Raises:
          ValueError: if a size is missing, the heads do not divide the width, or the network has an
            unsupported activation or kind of position.
        """
        name, config = read_json(source)
        require_settings(name, config, _COMPUTED)
        return cls(**read_sizes(name, config, "a BERT", _JSON_NAMES))


_JSON_NAMES = {
    "max_positions": "max_position_embeddings",
    "type_vocab": "type_vocab_size",
    "eps": "layer_norm_eps",
}
#: Supported values of config.json; None: the setting may be missing.
_COMPUTED = {
    "model_type": ("bert", None),
    "hidden_act": ("gelu", None),
    "position_embedding_type": ("absolute", None),
}


class Bert(Network):
    """Embeddings and a stack of blocks."""

    def __init__(self, config: BertConfig, compute: Compute, *, rngs: nnx.Rngs):
        def embed(rows):
            return nnx.Embed(rows, config.hidden, embedding_init=INIT, rngs=rngs)

        self.word = embed(config.vocab_size)
        self.position = embed(config.max_positions)
        self.token_type = embed(config.type_vocab)
        self.norm = norm(config.hidden, config.eps, rngs)
        self.config, self.compute = config, compute
        blocks = (Block(config, compute, rngs=rngs) for _ in range(config.layers))
        self.blocks = nnx.Dict({str(i): block for i, block in enumerate(blocks)})

    def embed(
        self,
        ids: Int[Array, "B L"],
        positions: Int[Array, "B L"] | None = None,
        types: Int[Array, "B L"] | None = None,
    ) -> Float[Array, "B L H"]:
        positions = jnp.arange(ids.shape[1])[None] if positions is None else positions
        return self.inject(self.word(ids), positions, types)

    def inject(
        self,
        vectors: Float[Array, "B L H"],
        positions: Int[Array, "B L"],
        types: Int[Array, "B L"] | None = None,
    ) -> Float[Array, "B L H"]:
        """Add the embeddings of positions and types to vectors, and normalise the sums.

        Args:
          vectors: token embeddings or other vectors [B, L, H].
          positions: positions in the sequence [B, L], from 0.
          types: [B, L], 0, and 1 in the second text of a pair; None: 0.

        Returns:
          Inputs of the first block [B, L, H].
        """
        fixed = self.token_type.embedding[:1][None] if types is None else self.token_type(types)
        return self.norm(vectors + (self.position(positions) + fixed))

    def run(
        self,
        x: Float[Array, "B L H"],
        mask: Bool[Array, "B L"],
        positions: Int[Array, "B L"] | None = None,
        *,
        key: PRNGKey | None = None,
    ) -> Float[Array, "B L H"]:
        length, limit = x.shape[1], self.config.max_positions
        if length > limit:  # embeddings beyond the limit would be NaN
            raise ValueError(f"a sequence may have {limit} positions (max_positions), got {length}")
        context = self.context(jnp.arange(length)[None] if positions is None else positions)
        return run_blocks(self.blocks, x, mask, self.compute, context, key=key)

    def context(self, positions: Int[Array, "B L"]) -> Context:
        """Return further inputs of every block: none, since x contains the positions."""
        return ()
