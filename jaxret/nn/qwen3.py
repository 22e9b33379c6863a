"""Qwen3 as a text encoder: the decoder of Qwen3-Embedding and Qwen3-Reranker.

    x = word;  x = block_i(x), i = 1 .. layers;  RMS(x)

    x = x + W_o attention(RMS(x));  x = x + W_down (silu(W_gate y) * W_up y) with y = RMS(x)

A block normalises queries and keys per head, then rotates them by their positions (RoPE, Su et al.
2021, Section 3.2). A group of query heads shares one head of keys and values (Ainslie et al. 2023).
No linear layer has a bias. Attention is causal, so the last token represents the text
(`last_pool`), and its logits predict the next token (`jaxret.nn.token_classifier`). Qwen Team 2025,
Section 2, in the layout of the HuggingFace checkpoints. The position of a token is the number of
tokens before it without padding, which may be on either side. HuggingFace counts padding, too,
unless it is given ``position_ids``: the result is the same up to rounding, since only differences
of positions matter.

Letters: B texts, L tokens per text, H hidden width, e width of a head.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AbstractMesh, Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Int

from jaxret.nn.block import run_blocks
from jaxret.nn.checkpoints import KeyTable
from jaxret.nn.config_json import read_json, read_sizes, require_settings
from jaxret.nn.layers import INIT, Compute, attend, dropout, fold, linear, rms_norm
from jaxret.nn.network import Network
from jaxret.runtime.sharding import Rules
from jaxret.types import PRNGKey

Turns = tuple[Float[Array, "B L 1 e/2"], Float[Array, "B L 1 e/2"]]

_LAYER = r"layers\.(\d+)\."
_ATTENTION, _MLP = _LAYER + r"self_attn\.", _LAYER + r"mlp\."

#: Names in a HuggingFace checkpoint -> paths in our parameters; see `checkpoints.convert`.
KEYS: KeyTable = {
    r"embed_tokens\.weight": ("word/embedding", False),
    _ATTENTION + r"q_proj\.weight": (r"blocks/\1/query/kernel", True),
    _ATTENTION + r"k_proj\.weight": (r"blocks/\1/key/kernel", True),
    _ATTENTION + r"v_proj\.weight": (r"blocks/\1/value/kernel", True),
    _ATTENTION + r"o_proj\.weight": (r"blocks/\1/out/kernel", True),
    _ATTENTION + r"q_norm\.weight": (r"blocks/\1/query_norm/scale", False),
    _ATTENTION + r"k_norm\.weight": (r"blocks/\1/key_norm/scale", False),
    _LAYER + r"input_layernorm\.weight": (r"blocks/\1/attention_norm/scale", False),
    _LAYER + r"post_attention_layernorm\.weight": (r"blocks/\1/mlp_norm/scale", False),
    _MLP + r"(gate|up|down)_proj\.weight": (r"blocks/\1/\2/kernel", True),
    r"norm\.weight": ("norm/scale", False),
    r"lm_head\.weight": None,  # `jaxret.nn.token_classifier` reads the rows it needs
}


@dataclass(frozen=True, kw_only=True)
class Qwen3Config:
    """The sizes of a Qwen3."""

    vocab_size: int
    hidden: int  # H
    layers: int
    heads: int  # heads of queries
    kv_heads: int  # heads of keys and values, each for a group of query heads
    head_width: int = 128  # e; heads * e need not be H
    intermediate: int
    max_positions: int = 40960  # in training; longer texts are allowed
    theta: float = 1e6  # the base of RoPE's wavelengths
    eps: float = 1e-6
    tied: bool = True  # whether the head that predicts tokens is the embedding

    @classmethod
    def from_json(cls, source: Path | Mapping[str, Any]) -> Self:
        """Read a HuggingFace ``config.json``, of transformers 4 or 5, or the dict that it holds.

        Raises:
          ValueError: if a size is missing or does not fit the others, or a setting is unsupported.
        """
        name, config = read_json(source)
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        config |= {"rope_type": rope.get("type", "default")} | rope  # of transformers 4 | 5
        require_settings(name, config, _COMPUTED)
        if other := set(config.get("layer_types") or ()) - {"full_attention"}:
            raise ValueError(f"{name}: layer_types must be only 'full_attention', got {other}")
        sizes = cls(**read_sizes(name, config, "a Qwen3", _JSON_NAMES))
        if sizes.heads % sizes.kv_heads:
            raise ValueError(
                f"{name}: num_key_value_heads must divide num_attention_heads, "
                f"got {sizes.kv_heads} and {sizes.heads}"
            )
        if sizes.head_width % 2:
            raise ValueError(f"{name}: head_dim must be even, got {sizes.head_width}")
        return sizes


_JSON_NAMES = {
    "kv_heads": "num_key_value_heads",
    "head_width": "head_dim",
    "max_positions": "max_position_embeddings",
    "theta": "rope_theta",
    "eps": "rms_norm_eps",
    "tied": "tie_word_embeddings",
}

#: Supported values of config.json, the first as default; None: the setting may be missing.
_COMPUTED = {
    "model_type": ("qwen3", None),
    "hidden_act": ("silu", None),
    "attention_bias": (False, None),
    "use_sliding_window": (False, None),
    "rope_type": ("default", None),
}


def tensor_parallel(config: Qwen3Config, mesh: Mesh | AbstractMesh) -> Rules:
    """Return the sharding rules of the parameters on a mesh with an axis ``model``.

    The axis splits the heads, the columns of the MLP and the rows of the vocabulary, or its columns
    if the devices do not divide its size (151669 and 151665 are odd). A block sums [B, L, H] over
    devices twice. Norms and LoRA adapters are replicated, as is everything over the other axes.

    Raises:
      ValueError: if there is no such axis, or its devices do not divide the heads of keys and
        values (8 in every preset), the MLP's width or the hidden width.
    """
    if "model" not in mesh.shape:
        raise ValueError(f"the mesh needs an axis 'model', it has {', '.join(mesh.shape)}")
    devices = mesh.shape["model"]
    for name in ("kv_heads", "intermediate", "hidden"):
        if (size := getattr(config, name)) % devices:
            raise ValueError(
                f"{name}={size} cannot be split over {devices} devices: choose an axis 'model' "
                f"that divides it, and put the other devices on an axis 'data'"
            )
    return (
        (r"\b(query|key|value|gate|up)/kernel$", P(None, "model")),
        (r"\b(out|down)/kernel$", P("model")),
        (r"\bword/embedding$", P(None, "model") if config.vocab_size % devices else P("model")),
    )


class Qwen3(Network):
    """Embeddings and a stack of blocks."""

    def __init__(self, config: Qwen3Config, compute: Compute, *, rngs: nnx.Rngs):
        self.word = nnx.Embed(config.vocab_size, config.hidden, embedding_init=INIT, rngs=rngs)
        self.norm = rms_norm(config.hidden, config.eps, rngs)
        self.config, self.compute = config, compute
        blocks = {str(i): DecoderBlock(config, compute, rngs=rngs) for i in range(config.layers)}
        self.blocks = nnx.Dict(blocks)

    def embed(
        self,
        ids: Int[Array, "B L"],
        positions: Int[Array, "B L"] | None = None,
        types: Int[Array, "B L"] | None = None,
    ) -> Float[Array, "B L H"]:
        """Embed tokens; positions enter only in `run`, and there are no token types."""
        return self.word(ids).astype(jnp.float32)

    def run(
        self,
        x: Float[Array, "B L H"],
        mask: Bool[Array, "B L"],
        positions: Int[Array, "B L"] | None = None,
        *,
        key: PRNGKey | None = None,
    ) -> Float[Array, "B L H"]:
        """Run the blocks; attention is causal by index, for any positions."""
        positions = jnp.cumsum(mask, axis=1) - 1 if positions is None else positions
        turns = angles(positions, self.config.head_width, self.config.theta)
        return self.norm(run_blocks(self.blocks, x, mask, self.compute, turns, key=key))


class DecoderBlock(nnx.Module):
    """A block, with dropout if it gets a key; ``turns`` are the `angles` of the positions."""

    def __init__(self, config: Qwen3Config, compute: Compute, *, rngs: nnx.Rngs):
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
