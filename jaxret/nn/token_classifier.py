"""A decoder that classifies a text by the logits of a few words, such as yes and no.

    logit of word w = (row w of the head) . (hidden state of the last real token)

Only the rows of these words are read from the head, so logits are [B, n] instead of [B, V]. They
are rows of the embedding if the head is tied, else a small separate parameter. A reranker's score
is the difference, or the softmax, of two logits.

Letters: B texts, L tokens per text, V vocabulary, n words, H hidden width.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from jaxret.nn import checkpoints, placement
from jaxret.nn.backbone import Backbone
from jaxret.nn.functional import Module, functionalize
from jaxret.nn.layers import Compute, last_pool, linear
from jaxret.nn.qwen3 import Qwen3Config
from jaxret.nn.tensor_files import load_safetensors
from jaxret.types import Params, PRNGKey

_HEAD = "lm_head.weight"  # [V, H]


def token_classifier(
    backbone: Backbone, words: Sequence[int], compute: Compute = Compute()
) -> Module:
    """Build ``apply(params, ids, mask, key=None) -> logits [B, n]``, float32.

    ``ids`` and ``mask`` are [B, L]. Parameters: ``backbone/..``, and ``head/kernel`` [H, n] unless
    tied.

    Args:
      backbone: a decoder.
      words: n distinct token ids, in the order of the logits.
      compute: settings of the backbone's computation.

    Raises:
      ValueError: if the backbone is not a decoder, or words are equal or not in V.
    """
    config = backbone.config
    if not isinstance(config, Qwen3Config):
        raise ValueError(f"answers come from a decoder (Qwen3), got {backbone.module.__name__}")
    size = config.vocab_size
    if not words or len(set(words)) < len(words) or not all(0 <= w < size for w in words):
        raise ValueError(f"words must be different numbers in 0 .. {size - 1}, got {list(words)}")
    return functionalize(
        lambda rngs: TokenClassifier(backbone, words, config.tied, compute, rngs=rngs)
    )


def load_token_classifier(
    backbone: Backbone,
    path: Path,
    words: Sequence[int],
    *,
    dtype: Literal["float32", "bfloat16"] = "float32",
    mesh: Mesh | None = None,
) -> Params:
    """Read the parameters of `token_classifier` from a HuggingFace ``Qwen3ForCausalLM``.

    Args:
      backbone: backbone of the checkpoint's config.json.
      path: directory or file of the checkpoint.
      words: n distinct token ids; only their rows are read from an untied head.
      dtype: dtype of the parameters, for any dtype of the file.
      mesh: devices of the parameters, as for `Backbone.shapes`.

    Raises:
      ValueError: if tensors do not fit, as when an embedding checkpoint lacks an untied head.
    """
    shapes = token_classifier(backbone, words).shapes()
    tensors = load_safetensors(path)
    keys: dict[str, tuple[str, bool] | None] = {
        pattern: None if target is None else (f"backbone/{target[0]}", target[1])
        for pattern, target in backbone.keys.items()
    }
    if "head" in shapes and _HEAD in tensors:
        tensors[_HEAD] = tensors[_HEAD][list(words)]
        keys[r"lm_head\.weight"] = ("head/kernel", True)
    shapes = placement.placed(shapes, dtype=dtype, mesh=mesh, rules=backbone.rules(mesh))
    return checkpoints.convert(tensors, keys, shapes, prefix=backbone.prefix)


class TokenClassifier(nnx.Module):
    def __init__(
        self,
        backbone: Backbone,
        words: Sequence[int],
        tied: bool,
        compute: Compute,
        *,
        rngs: nnx.Rngs,
    ):
        self.backbone = backbone.build(compute, rngs)
        self.words, self.tied = tuple(words), tied
        if not tied:  # in float32: the 8 bits of bfloat16 tie the scores of many documents
            self.head = linear(backbone.config.hidden, len(words), Compute(), rngs, bias=False)

    def __call__(
        self, ids: Int[Array, "B L"], mask: Bool[Array, "B L"], *, key: PRNGKey | None = None
    ) -> Float[Array, "B n"]:
        last = last_pool(self.backbone(ids, mask, key=key), mask)
        if not self.tied:
            return self.head(last)
        return last @ self.backbone.word(jnp.array(self.words)).astype(jnp.float32).T
