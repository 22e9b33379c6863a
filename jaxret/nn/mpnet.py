"""MPNet as a text encoder: all-mpnet-base-v2.

    x = LN(word + position)
    score(i, j) = q_i . k_j / sqrt(e) + b_(j - i)

A BERT without token types whose scores also have a bias for each distance and head, shared by all
blocks (Song et al. 2020; the buckets are T5's). Near distances have one bias each, farther ones
share them, and distances of 128 and more have one in each direction. Parameters have the layout of
the HuggingFace checkpoints, in whose table of positions the first two rows are unused.

Letters: B texts, L tokens per text, H hidden width, e width of a head.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from jaxret.nn.bert import Bert
from jaxret.nn.block import Block, Context
from jaxret.nn.checkpoints import KeyTable, linear_keys, norm_keys
from jaxret.nn.config_json import read_json, read_sizes, require_settings
from jaxret.nn.layers import INIT, Compute, norm
from jaxret.types import PRNGKey

FIRST = 2  # row of the first position, after the padding token's id, 1
BUCKETS = 32  # buckets of distances, half of them in each direction
FARTHEST = 128  # larger distances share one bucket

_LAYER = r"encoder\.layer\.(\d+)\."
_ATTENTION = _LAYER + r"attention\.attn\."

#: Names in a HuggingFace checkpoint -> paths in our parameters; see `checkpoints.convert`.
KEYS: KeyTable = {
    r"embeddings\.(word|position)_embeddings\.weight": (r"\1/embedding", False),
    **norm_keys(r"embeddings\.LayerNorm", "norm"),
    r"encoder\.relative_attention_bias\.weight": ("relative/embedding", False),
    **linear_keys(_ATTENTION + "q", r"blocks/\1/query"),
    **linear_keys(_ATTENTION + "k", r"blocks/\1/key"),
    **linear_keys(_ATTENTION + "v", r"blocks/\1/value"),
    **linear_keys(_ATTENTION + "o", r"blocks/\1/out"),
    **norm_keys(_LAYER + r"attention\.LayerNorm", r"blocks/\1/attention_norm"),
    **linear_keys(_LAYER + r"intermediate\.dense", r"blocks/\1/up"),
    **linear_keys(_LAYER + r"output\.dense", r"blocks/\1/down"),
    **norm_keys(_LAYER + r"output\.LayerNorm", r"blocks/\1/mlp_norm"),
    r"embeddings\.position_ids": None,  # 0, 1, 2, ...
    r"(lm_head|pooler|classifier)\..*": None,  # heads
}


@dataclass(frozen=True, kw_only=True)
class MPNetConfig:
    """The sizes of an MPNet."""

    vocab_size: int
    hidden: int  # H
    layers: int
    heads: int
    intermediate: int
    max_positions: int  # longest text in tokens: the rows of the table minus 2
    eps: float

    @classmethod
    def from_json(cls, source: Path | Mapping[str, Any]) -> Self:
        """Read a HuggingFace ``config.json``, or the dict that it holds.

        Raises:
          ValueError: if a size is missing, the heads do not divide the width, or the network has an
            unsupported activation or number of buckets.
        """
        name, config = read_json(source)
        require_settings(name, config, _COMPUTED)
        sizes = read_sizes(name, config, "an MPNet", _JSON_NAMES)
        if (rows := sizes["max_positions"]) <= FIRST:
            raise ValueError(f"{name}: max_position_embeddings must be > {FIRST}, got {rows}")
        return cls(**sizes | {"max_positions": rows - FIRST})


_JSON_NAMES = {"max_positions": "max_position_embeddings", "eps": "layer_norm_eps"}
#: Supported values of config.json; None: the setting may be missing.
_COMPUTED = {
    "model_type": ("mpnet", None),
    "hidden_act": ("gelu", None),
    "relative_attention_num_buckets": (BUCKETS, None),
}


def buckets(farthest: int) -> Int[np.ndarray, "2*farthest+1"]:
    """Find the bucket of each distance j - i from -farthest to farthest.

    Distances below 8 have one bucket each; from 8 on a bucket's end is sqrt(2) times its start.

    Returns:
      Rows of the table of biases [2 farthest + 1].
    """
    half, near = BUCKETS // 2, BUCKETS // 4
    distance = np.arange(-farthest, farthest + 1)
    size = np.abs(distance)
    steps = np.log(np.maximum(size, near) / near) / np.log(FARTHEST / near) * (half - near)
    shared = np.minimum(near + np.floor(steps), half - 1)
    return (half * (distance > 0) + np.where(size < near, size, shared)).astype(np.int32)


class MPNet(Bert):
    """A BERT with biases in place of token types."""

    def __init__(self, config: MPNetConfig, compute: Compute, *, rngs: nnx.Rngs):
        def embed(rows, width):
            return nnx.Embed(rows, width, embedding_init=INIT, rngs=rngs)

        self.word = embed(config.vocab_size, config.hidden)
        self.position = embed(FIRST + config.max_positions, config.hidden)
        self.norm = norm(config.hidden, config.eps, rngs)
        self.relative = embed(BUCKETS, config.heads)
        self.config, self.compute = config, compute
        blocks = (BiasedBlock(config, compute, rngs=rngs) for _ in range(config.layers))
        self.blocks = nnx.Dict({str(i): block for i, block in enumerate(blocks)})

    def inject(
        self,
        vectors: Float[Array, "B L H"],
        positions: Int[Array, "B L"],
        types: Int[Array, "B L"] | None = None,
    ) -> Float[Array, "B L H"]:
        """Add the embeddings of positions; ``types`` are ignored, since MPNet has none."""
        return self.norm(vectors + self.position(FIRST + positions))

    def context(self, positions: Int[Array, "B L"]) -> Context:
        """Return the bias of each pair of tokens and each head [1 or B, heads, L, L]."""
        distances = positions[:, None, :] - positions[:, :, None]
        rows = jnp.asarray(buckets(FARTHEST))[jnp.clip(distances, -FARTHEST, FARTHEST) + FARTHEST]
        return (jnp.moveaxis(self.relative(rows), -1, 1),)


class BiasedBlock(Block):
    """A block whose attention has a bias by distance, ``context`` [1 or B, heads, L, L]."""

    def scores(
        self,
        q: Float[Array, "B L heads e"],
        k: Float[Array, "B L heads e"],
        context: Context,
        key: PRNGKey | None = None,
    ) -> Float[Array, "B heads L L"]:
        """Add the bias to q k^T / sqrt(e)."""
        (bias,) = context
        return super().scores(q, k, context) + bias
