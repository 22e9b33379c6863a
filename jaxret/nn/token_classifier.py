"""A decoder that answers with one of a few words, such as yes and no.

    logit of word w = (row w of the head) . (hidden state of the last real token)

The rows of these words are all that is ever read or computed of the head: logits are [B, n], with
no [B, V]. Where the head is tied they are rows of the embedding, else a small parameter of their
own. A reranker's score is the difference, or the softmax, of two of them.

Letters: B texts, L tokens a text, V vocabulary, n words, H hidden width.
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
from jaxret.runtime.sharding import Rules
from jaxret.types import Params, PRNGKey

_HEAD = "lm_head.weight"  # [V, H]


def token_classifier(
    backbone: Backbone, words: Sequence[int], compute: Compute = Compute()
) -> Module:
    """``apply(params, ids, mask, key=None) -> logits [B, n]``, float32.

    ``ids`` and ``mask`` are [B, L]. Parameters: ``backbone/..`` as the backbone has them, and
    ``head/kernel`` [H, n] where the head is not tied.

    Args:
      backbone: a decoder.
      words: n different token numbers, in the order of the logits.
      compute: how the backbone is computed.

    Raises:
      ValueError: if the backbone is no decoder, or for words that are equal or not in V.
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
    rules: Rules = (),
) -> Params:
    """Reads the parameters of `token_classifier` from a HuggingFace ``Qwen3ForCausalLM``.

    Args:
      backbone: of its config.json.
      path: as of `Backbone.load`.
      words: as of `token_classifier`; of an untied head only their rows are read.
      dtype: as of `Backbone.load`.
      mesh: as of `Backbone.load`.
      rules: as of `Backbone.load`.

    Raises:
      ValueError: naming every tensor that does not fit; a checkpoint for embeddings alone lacks
        the head, unless it is tied.
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
    shapes = placement.placed(shapes, dtype=dtype, mesh=mesh, rules=rules)
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
        if not tied:  # float32: in bfloat16 a logit has 8 bits, and many documents the same score
            self.head = linear(backbone.config.hidden, len(words), Compute(), rngs, bias=False)

    def __call__(
        self,
        ids: Int[Array, "B L"],
        mask: Bool[Array, "B L"],
        *,
        key: PRNGKey | None = None,
    ) -> Float[Array, "B n"]:
        last = last_pool(self.backbone(ids, mask, key=key), mask)
        if not self.tied:
            return self.head(last)
        return last @ self.backbone.word(jnp.array(self.words)).astype(jnp.float32).T
