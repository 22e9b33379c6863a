"""Losses: multi-label cross-entropies for tools, margins and contrasts for vectors.

    multi_label_bce    one binary decision per tool               MLC and ToolRefiner, as written
    softmax_ce         the tools compete for each label           MLC, as the reference trains it
    triplet_margin     nearer to a positive than to a negative    Tool2Vec's encoders
    info_nce           the right document among many              DPR, Tool-Embed

All return the mean over the rows of a batch, as a scalar, and compute in float32 or wider.

Letters: B rows, I tools, N candidates, L labels per row (padded with -1), m negatives, d width.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxret.runtime.validate import require

_EPS = 1e-6  # PyTorch's, in every coordinate of a difference


def is_label(items: Int[Array, "#B N"], labels: Int[Array, "B L"]) -> Bool[Array, "B N"]:
    """Test whether each item is one of its row's labels; -1 is neither an item nor a label.

    Args:
      items: tools of each row [B, N], or the same for all rows [1, N].
      labels: the right tools of each row [B, L], padded with -1.

    Returns:
      True for the items that are labels [B, N].
    """
    same = items[:, :, None] == labels[:, None, :]
    return same.any(axis=2) & (items >= 0)


def multi_label_bce(
    logits: Float[Array, "B N"],
    labels: Int[Array, "B L"],
    candidates: Int[Array, "B N"] | None = None,
) -> Float[Array, ""]:
    """Compute the sigmoid cross-entropy, averaged over the tools of a row.

        mean_i  softplus(-z_i) if i is a label else softplus(z_i)      (Tool2Vec, Sections 4.2, 4.3)

    Args:
      logits: z [B, N], one column per tool.
      labels: the right tools [B, L], padded with -1; those without a column are ignored.
      candidates: the tool of each column [B, N], -1 for none; by default column i is tool i. A row
        without any candidate has loss 0.

    Returns:
      the mean over rows [], in nats per tool.
    """
    columns = jnp.arange(logits.shape[1])[None] if candidates is None else candidates
    logits, present = _float32(logits), columns >= 0
    each = jax.nn.softplus(jnp.where(is_label(columns, labels), -logits, logits))
    count = jnp.maximum(present.sum(axis=1), 1)
    return (jnp.where(present, each, 0).sum(axis=1) / count).mean()


def softmax_ce(logits: Float[Array, "B I"], labels: Int[Array, "B L"]) -> Float[Array, ""]:
    """Compute the cross-entropy of one softmax over all tools, summed over a row's labels.

        - sum_{l in labels}  log softmax(z)_l

    The paper has a 0 or 1 for each tool (Tool2Vec, Section 4.2), which suggests `multi_label_bce`;
    its code minimises this loss, the default of its library. By the sum, the weight of a query is
    its number of labels.

    Args:
      logits: z [B, I], one column per tool.
      labels: the right tools [B, L], padded with -1; a row without any has loss 0.

    Returns:
      the mean over rows [], in nats.
    """
    right = is_label(jnp.arange(logits.shape[1])[None], labels)
    loss = jnp.where(right, -jax.nn.log_softmax(_float32(logits), axis=1), 0).sum(axis=1)
    return loss.mean()


def triplet_margin(
    anchor: Float[Array, "B d"],
    positive: Float[Array, "B d"],
    negative: Float[Array, "B d"],
    *,
    margin: float = 1.0,
    unit: bool = False,
) -> Float[Array, ""]:
    """Compute the triplet margin loss.

        max(0, |a - p + eps| - |a - n + eps| + margin)          eps = 1e-6 in every coordinate

    eps is PyTorch's and keeps the gradient finite where vectors coincide. Tool2Vec's trainer
    compares raw vectors, although retrieval compares unit vectors.

    Args:
      anchor: vectors a [B, d].
      positive: vectors p [B, d].
      negative: vectors n [B, d].
      margin: the distance by which a negative should be farther than the positive.
      unit: scales all vectors to length 1 first.

    Returns:
      the mean over rows [], a distance.

    Raises:
      ValueError: for a negative margin.
    """
    require("margin", margin, ">= 0", lambda x: x >= 0)
    a, p, n = (_float32(x) for x in (anchor, positive, negative))
    if unit:
        a, p, n = (x / _length(x)[:, None] for x in (a, p, n))
    short = _length(a - p + _EPS) - _length(a - n + _EPS) + margin
    return jax.nn.relu(short).mean()


def info_nce(
    queries: Float[Array, "B d"],
    documents: Float[Array, "B d"],
    labels: Int[Array, "B L"],
    document_labels: Int[Array, " B"],
    negatives: Float[Array, "B m d"],
    negative_labels: Int[Array, "B m"],
    *,
    temperature: float,
    in_batch: bool = True,
) -> Float[Array, ""]:
    """Compute the cross-entropy of finding a query's document among the others.

        - log  e^{q.d+ / tau} / (e^{q.d+ / tau} + sum_j e^{q.d_j / tau})

    The others are the negatives of the row and, with ``in_batch``, the documents and negatives of
    all rows. Documents of the query's own tools are excluded; in the reference two queries for one
    tool repel its document.

    Args:
      queries: q [B, d], usually unit vectors.
      documents: d+ [B, d], the document of one of the query's tools.
      labels: all tools of the query [B, L], padded with -1.
      document_labels: the tool of each document [B].
      negatives: further documents of each row [B, m, d].
      negative_labels: the tools of the negatives [B, m], -1 for none.
      temperature: tau, above 0.
      in_batch: whether rows serve each other as negatives.

    Returns:
      the mean over rows [], in nats.

    Raises:
      ValueError: for a temperature that is not above 0, or if no row has a negative.
    """
    if not in_batch:
        require("negatives", negatives.shape[1], ">= 1 per row without in_batch", lambda m: m >= 1)
    require("temperature", temperature, "> 0", lambda x: x > 0)
    queries, documents, negatives = (_float32(x) for x in (queries, documents, negatives))

    right = (queries * documents).sum(axis=1, keepdims=True) / temperature
    if in_batch:
        tools = jnp.concatenate([document_labels[:, None], negative_labels], axis=1)
        tools = tools.reshape(1, -1)
        others = jnp.concatenate([documents[:, None], negatives], axis=1)
        scores = queries @ others.reshape(-1, others.shape[2]).T / temperature
    else:
        tools = negative_labels
        scores = jnp.einsum("bd,bmd->bm", queries, negatives) / temperature
    own = jnp.concatenate([labels, document_labels[:, None]], axis=1)
    wrong = (tools >= 0) & ~is_label(tools, own)
    scores = jnp.concatenate([right, jnp.where(wrong, scores, -jnp.inf)], axis=1)
    return (jax.nn.logsumexp(scores, axis=1) - right[:, 0]).mean()


def _float32(x):
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _length(x):
    """Return Euclidean lengths, with a gradient of 0 at the zero vector."""
    return jnp.sqrt(jnp.maximum((x * x).sum(axis=1), 1e-24))
