"""A backbone with a linear head: one logit per tool (MLC), or one per text (cross-encoder).

    logits = W dropout(pool(hidden)) + b

Pools:
    context   the first token through a dense layer and an activation (gelu in DeBERTa, else tanh),
              as in HuggingFace's sequence classifiers and the reference's MLC;
    mean      the average of the tokens, as in sentence encoders such as MiniLM and E5, whose first
              token is not trained.

Letters: B texts, L tokens, H hidden width, I classes.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from jaxret.nn.backbone import Backbone
from jaxret.nn.bert import Bert
from jaxret.nn.checkpoints import KeyTable, linear_keys
from jaxret.nn.deberta import Deberta
from jaxret.nn.functional import Module, functionalize
from jaxret.nn.layers import Compute, dropout, fold, gelu, linear, mean_pool
from jaxret.nn.mpnet import MPNet
from jaxret.nn.network import Network
from jaxret.types import PRNGKey

Pool = Literal["mean", "context"]


class Context(NamedTuple):
    """The published layout of a sequence classifier's context pool."""

    dense: str  # names of the layers; {prefix} is the backbone's
    head: str
    activation: Callable[[Array], Array]


CONTEXTS: dict[type[Network], Context] = {
    Bert: Context(r"{prefix}pooler\.dense", "classifier", jnp.tanh),
    MPNet: Context(r"classifier\.dense", r"classifier\.out_proj", jnp.tanh),
    Deberta: Context(r"pooler\.dense", "classifier", gelu),
}


def classifier(
    backbone: Backbone, classes: int, *, pool: Pool = "context", compute: Compute = Compute()
) -> Module:
    """Build a network that computes one logit per class from a text or a pair of texts.

    ``apply(params, ids, mask, types=None, key=None)`` returns float32 logits [B, I]. ``ids``,
    ``mask`` and ``types`` are [B, L]; types are for pairs of texts. Parameters: ``backbone/..``,
    ``dense`` (context pool) and ``head``.

    Args:
      backbone: network that reads the text.
      classes: I, the number of logits.
      pool: "context" passes the first token through a dense layer, "mean" averages the tokens.
      compute: dtype of the matrix products, checkpointing and dropout.

    Raises:
      ValueError: for the pool "context" with a causal backbone such as Qwen3.
    """
    if pool == "context" and backbone.module not in CONTEXTS:
        kind = backbone.module.__name__
        raise ValueError(
            f"{kind} reads from left to right, so its first token does not represent the text"
        )
    return functionalize(lambda rngs: Classifier(backbone, classes, pool, compute, rngs=rngs))


def classifier_keys(backbone: Backbone) -> KeyTable:
    """Return the keys of a HuggingFace sequence classifier with the context pool."""
    prefix = backbone.prefix.replace(".", r"\.")
    published = CONTEXTS[backbone.module]
    body = {
        prefix + pattern: None if target is None else (f"backbone/{target[0]}", target[1])
        for pattern, target in backbone.keys.items()
    }
    return {  # heads come first, since the backbone's table ignores them
        **linear_keys(published.dense.format(prefix=prefix), "dense"),
        **linear_keys(published.head, "head"),
        **body,
    }


class Classifier(nnx.Module):
    def __init__(
        self, backbone: Backbone, classes: int, pool: Pool, compute: Compute, *, rngs: nnx.Rngs
    ):
        width = backbone.config.hidden
        self.backbone = backbone.build(compute, rngs)
        if pool == "context":
            self.dense = linear(width, width, compute, rngs)
            self.activation = CONTEXTS[backbone.module].activation
        self.head = linear(width, classes, compute, rngs)
        self.pool, self.rate = pool, compute.dropout

    def __call__(
        self,
        ids: Int[Array, "B L"],
        mask: Bool[Array, "B L"],
        *,
        types: Int[Array, "B L"] | None = None,
        key: PRNGKey | None = None,
    ) -> Float[Array, "B I"]:
        hidden = self.backbone(ids, mask, types=types, key=fold(key, 0))
        if self.pool == "context":
            pooled = self.activation(self.dense(hidden[:, 0]))
        else:
            pooled = mean_pool(hidden, mask)
        return self.head(dropout(pooled, self.rate, fold(key, 1))).astype(jnp.float32)
