"""DeBERTa-V3 as a text encoder.

A BERT without positions in its input. Positions enter each attention through the distance
d = i - j of two tokens, which has an embedding r_d (He et al. 2021, disentangled attention):

    score(i, j) = (q_i . k_j + q_i . k(r_d) + k_j . q(r_d)) / sqrt(3 e)

In V3 (He et al. 2023), r is normalised and mapped by the query and key maps of the tokens, biases
included. Near distances have one r each, farther ones share r on a logarithmic scale, and all
beyond a maximum share one, so a text may have any length. Parameters have the layout of the
HuggingFace checkpoints.

Letters: B texts, L tokens per text, H hidden width, e width of a head, M rows of r.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxret.nn.block import Block, Context, run_blocks
from jaxret.nn.checkpoints import KeyTable, linear_keys, norm_keys
from jaxret.nn.config_json import read_json, read_sizes, require_settings
from jaxret.nn.layers import INIT, Compute, dropout, norm
from jaxret.nn.network import Network
from jaxret.types import PRNGKey

_LAYER = r"encoder\.layer\.(\d+)\."

#: Names in a HuggingFace checkpoint -> paths in our parameters; see `checkpoints.convert`.
KEYS: KeyTable = {
    r"embeddings\.word_embeddings\.weight": ("word/embedding", False),
    **norm_keys(r"embeddings\.LayerNorm", "norm"),
    r"encoder\.rel_embeddings\.weight": ("relative/embedding", False),
    **norm_keys(r"encoder\.LayerNorm", "relative_norm"),
    **linear_keys(_LAYER + r"attention\.self\.(query|key|value)_proj", r"blocks/\1/\2"),
    **linear_keys(_LAYER + r"attention\.output\.dense", r"blocks/\1/out"),
    **norm_keys(_LAYER + r"attention\.output\.LayerNorm", r"blocks/\1/attention_norm"),
    **linear_keys(_LAYER + r"intermediate\.dense", r"blocks/\1/up"),
    **linear_keys(_LAYER + r"output\.dense", r"blocks/\1/down"),
    **norm_keys(_LAYER + r"output\.LayerNorm", r"blocks/\1/mlp_norm"),
    r"embeddings\.(position_embeddings\..*|word_embeddings\._weight)": None,  # of pre-training
    r"(lm_predictions|mask_predictions|cls|pooler|classifier)\..*": None,  # heads
}


@dataclass(frozen=True, kw_only=True)
class DebertaConfig:
    """The sizes of a DeBERTa-V3."""

    vocab_size: int = 128100
    hidden: int  # H
    layers: int
    heads: int
    intermediate: int
    buckets: int = 256  # buckets of distances, in either direction
    max_distance: int = 512  # larger distances share one bucket
    eps: float = 1e-7

    @classmethod
    def from_json(cls, source: Path | Mapping[str, Any]) -> Self:
        """Read a HuggingFace ``config.json``, or the dict that it holds.

        Raises:
          ValueError: if a size is missing or does not fit the others, or a setting is unsupported.
        """
        name, config = read_json(source)
        require_settings(name, config, _COMPUTED)
        sizes = cls(**read_sizes(name, config, "a DeBERTa-V3", _JSON_NAMES))
        if (distance := config.get("max_relative_positions", -1)) > 0:  # published ones say -1
            sizes = replace(sizes, max_distance=distance)
        limit = 2 * sizes.max_distance - 2
        if sizes.buckets % 2 or not 0 < sizes.buckets < limit:
            raise ValueError(
                f"{name}: position_buckets must be even, above 0 and below {limit} "
                f"(max_relative_positions: {sizes.max_distance}), got {sizes.buckets}"
            )
        widths = {
            "embedding_size": (sizes.hidden, None),
            "attention_head_size": (sizes.hidden // sizes.heads, None),
        }
        require_settings(name, config, widths)
        return sizes


_JSON_NAMES = {
    "buckets": "position_buckets",
    "max_distance": "max_position_embeddings",
    "eps": "layer_norm_eps",
}

#: Supported values of config.json, the first as default; None: the setting may be missing.
_COMPUTED = {
    "model_type": ("deberta-v2", None),
    "hidden_act": ("gelu", None),
    "type_vocab_size": (0, None),
    "conv_kernel_size": (0, None),
    "relative_attention": (True,),
    "position_biased_input": (False,),
    "share_att_key": (True,),
    "norm_rel_ebd": ("layer_norm",),
    "pos_att_type": ("p2c|c2p", "c2p|p2c", ["p2c", "c2p"], ["c2p", "p2c"]),
}


def distance_rows(config: DebertaConfig) -> Int[np.ndarray, "2*max_distance+1"]:
    """Find the row of r for each distance from -max_distance to max_distance.

    With b = buckets / 2, distances up to b have one row each; those up to max_distance - 1 share
    the b - 1 further rows of their direction, by logarithm. Larger distances use the last row.

    Returns:
      Rows [2 max_distance + 1].
    """
    b = config.buckets // 2
    distance = np.arange(-config.max_distance, config.max_distance + 1)
    size = np.maximum(np.abs(distance), b)
    shared = b + np.ceil(np.log(size / b) / np.log((config.max_distance - 1) / b) * (b - 1))
    bucket = np.where(np.abs(distance) <= b, distance, np.sign(distance) * shared)
    return np.clip(config.buckets + bucket, 0, 2 * config.buckets - 1).astype(np.int32)


class Deberta(Network):
    """Embeddings and a stack of blocks."""

    def __init__(self, config: DebertaConfig, compute: Compute, *, rngs: nnx.Rngs):
        def embed(rows):
            return nnx.Embed(rows, config.hidden, embedding_init=INIT, rngs=rngs)

        self.word = embed(config.vocab_size)
        self.norm = norm(config.hidden, config.eps, rngs)
        self.relative = embed(2 * config.buckets)
        self.relative_norm = norm(config.hidden, config.eps, rngs)
        self.config, self.compute = config, compute
        blocks = (DisentangledBlock(config, compute, rngs=rngs) for _ in range(config.layers))
        self.blocks = nnx.Dict({str(i): block for i, block in enumerate(blocks)})

    def embed(
        self,
        ids: Int[Array, "B L"],
        positions: Int[Array, "B L"] | None = None,
        types: Int[Array, "B L"] | None = None,
    ) -> Float[Array, "B L H"]:
        """Embed tokens; positions enter only in `run`, and V3 has no token types."""
        return self.norm(self.word(ids))

    def run(
        self,
        x: Float[Array, "B L H"],
        mask: Bool[Array, "B L"],
        positions: Int[Array, "B L"] | None = None,
        *,
        key: PRNGKey | None = None,
    ) -> Float[Array, "B L H"]:
        """Run the blocks; positions default to 0 .. L-1, and differences above L give NaN."""
        length, farthest = x.shape[1], self.config.max_distance
        distances = np.clip(np.arange(length, -length - 1, -1), -farthest, farthest)
        rows = distance_rows(self.config)[distances + farthest]
        r = self.relative_norm(self.relative.embedding)[rows]
        where = None
        if positions is not None:
            where = length - (positions[:, :, None] - positions[:, None, :])
        return run_blocks(self.blocks, x, mask, self.compute, (r, where), key=key)


class DisentangledBlock(Block):
    """A block whose attention depends on distances: row ``where [B, L, L]`` of r [M, H]."""

    def scores(
        self,
        q: Float[Array, "B L heads e"],
        k: Float[Array, "B L heads e"],
        context: Context,
        key: PRNGKey | None = None,
    ) -> Float[Array, "B heads L L"]:
        """Add the terms of distances to q k^T, and divide by sqrt(3 e)."""
        r, where = context
        r = dropout(r, self.rate, key)
        q_r, k_r = (self.split(f(r), len(r)) for f in (self.query, self.key))
        scale = (3 * q.shape[-1]) ** -0.5
        content = jnp.einsum("bqhe,bkhe->bhqk", q * scale, k)
        return content + distance_scores(q * scale, k * scale, q_r, k_r, where)


def distance_scores(
    q: Float[Array, "B L heads e"],
    k: Float[Array, "B L heads e"],
    q_r: Float[Array, "M heads e"],
    k_r: Float[Array, "M heads e"],
    where: Int[Array, "B L L"] | None,
) -> Float[Array, "B heads L L"]:
    """Compute q_i . k(r_d) + k_j . q(r_d), where the rows of r are the distances L, ..., -L.

    Each pair of tokens reads row ``where``. Without ``where`` tokens are in order, and each reads
    consecutive rows by a reshape, which avoids a gather and, in the gradient, a scatter.

    Args:
      q: queries of the tokens [B, L, heads, e], scaled.
      k: keys of the tokens [B, L, heads, e], scaled.
      q_r: queries of the distances [M, heads, e], with M = 2 L + 1.
      k_r: keys of the distances [M, heads, e].
      where: row of r for each pair of tokens [B, L, L]; None: tokens are in order.

    Returns:
      A score for each pair of tokens [B, heads, L, L].
    """
    by_query = jnp.einsum("bqhe,mhe->bhqm", q, k_r)
    if where is None:
        by_key = jnp.einsum("bkhe,mhe->bhkm", k, q_r[::-1])
        return _diagonals(by_query) + _diagonals(by_key).swapaxes(2, 3)
    where = where[:, None]
    by_key = jnp.einsum("bkhe,mhe->bhkm", k, q_r)
    by_query = jnp.take_along_axis(by_query, where, axis=-1)
    by_key = jnp.take_along_axis(by_key, where.swapaxes(2, 3), axis=-1)
    return by_query + by_key.swapaxes(2, 3)


def _diagonals(x):
    """Map [..., L, 2 L + 1] to [..., L, L], with entry (i, j) = x[i, L - i + j]."""
    length = x.shape[-2]
    flat = x.reshape(*x.shape[:-2], -1)[..., length:]
    return flat.reshape(*x.shape[:-2], length, 2 * length)[..., :length]
