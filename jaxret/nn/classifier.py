"""A backbone and a linear head: one logit a tool (MLC), or one logit a text (cross-encoder).

    logits = W dropout(pool(hidden)) + b

Pools:
    context   the first token through a dense layer and an activation: the head that HuggingFace's
              sequence classifiers have (gelu in DeBERTa, else tanh), and the reference's MLC;
    mean      the average of the tokens, as sentence encoders such as MiniLM and E5 are trained.
              Their first token was never asked to say anything.

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

Pool = Literal["context", "mean"]


class Context(NamedTuple):
    """How the context pool of a sequence classifier is published."""

    dense: str  # its layers' names; {prefix} is the backbone's
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
    """Builds a network that gives a text, or a pair of texts, one logit a class.

    It is called as ``apply(params, ids, mask, types=None, key=None)`` and gives float32 logits
    [B, I]. ``ids``, ``mask`` and ``types`` are [B, L]; types are for pairs of texts. Parameters:
    ``backbone/..`` as the backbone has them, ``dense`` (context pool), ``head``.

    Args:
      backbone: reads the text.
      classes: I, the number of logits.
      pool: "context" takes the first token through a dense layer, "mean" averages the tokens.
      compute: type of the matrix products, checkpointing and dropout.

    Returns:
      the network as pure functions.

    Raises:
      ValueError: where the pool is unknown, or it is "context" and the backbone reads from left to
        right, as Qwen3 does.
    """
    if pool not in ("context", "mean"):
        raise ValueError(f"pool must be 'context' or 'mean', got {pool!r}")
    if pool == "context" and backbone.module not in CONTEXTS:
        kind = backbone.module.__name__
        raise ValueError(f"{kind} reads from left to right, so its first token says nothing")
    return functionalize(lambda rngs: Classifier(backbone, classes, pool, compute, rngs=rngs))


def classifier_keys(backbone: Backbone) -> KeyTable:
    """Names of a HuggingFace sequence classifier with the context pool."""
    prefix = backbone.prefix.replace(".", r"\.")
    published = CONTEXTS[backbone.module]
    body = {
        prefix + pattern: None if target is None else (f"backbone/{target[0]}", target[1])
        for pattern, target in backbone.keys.items()
    }
    return {  # heads before the backbone's table, which leaves them out
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
