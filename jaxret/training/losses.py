"""Losses: multi-label cross-entropies for tools, margins and contrasts for vectors.

    multi_label_bce    one binary decision per tool               MLC and ToolRefiner, as written
    softmax_ce         the tools compete for each label           MLC, as the reference trains it
    triplet_margin     nearer to a positive than to a negative    Tool2Vec's encoders
    info_nce           the right document among many              DPR, Tool-Embed

All return the mean over the rows of a batch, as a scalar, and compute in float32 or wider.
``weights [B]`` are the rows' weights, by default 1. Rows that fill up a last batch have weight 0;
their contents must be finite and change nothing.

Letters: B rows, I tools, N candidates, L labels per row (padded with -1), m negatives, d width.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxret.runtime.validate import require

_EPS = 1e-6  # PyTorch's, in every coordinate of a difference


def is_label(items: Int[Array, "#B N"], labels: Int[Array, "B L"]) -> Bool[Array, "B N"]:
    """Test whether each item is one of its row's labels; -1 is no item and no label.

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
    *,
    weights: Float[Array, " B"] | None = None,
) -> Float[Array, ""]:
    """Compute the sigmoid cross-entropy, averaged over the tools of a row.

        mean_i  softplus(-z_i) if i is a label else softplus(z_i)      (Tool2Vec, Sections 4.2, 4.3)

    Args:
      logits: z [B, N], one column per tool.
      labels: the right tools [B, L], padded with -1; those without a column are ignored.
      candidates: the tool of each column [B, N], -1 for none; by default column i is tool i. A row
        without any candidate has loss 0.
      weights: weights of the rows [B]; None: 1 each.

    Returns:
      the mean over rows [], in nats per tool.
    """
    columns = jnp.arange(logits.shape[1])[None] if candidates is None else candidates
    logits, present = _float32(logits), columns >= 0
    each = jax.nn.softplus(jnp.where(is_label(columns, labels), -logits, logits))
    count = jnp.maximum(present.sum(axis=1), 1)
    return _mean(jnp.where(present, each, 0).sum(axis=1) / count, weights)


def softmax_ce(
    logits: Float[Array, "B I"],
    labels: Int[Array, "B L"],
    *,
    normalise: bool = False,
    weights: Float[Array, " B"] | None = None,
) -> Float[Array, ""]:
    """Compute the cross-entropy of one softmax over all tools, summed over a row's labels.

        - sum_{l in labels}  log softmax(z)_l

    The paper has a 0 or 1 for each tool (Tool2Vec, Section 4.2), which suggests `multi_label_bce`;
    its code minimises this loss, a default of its library. In the sum a query counts as often as it
    has labels.

    Args:
      logits: z [B, I], one column per tool.
      labels: the right tools [B, L], padded with -1; a row without any has loss 0.
      normalise: divides by the number of labels, so that every query counts the same.
      weights: weights of the rows [B]; None: 1 each.

    Returns:
      the mean over rows [], in nats: summed over a row's labels, or a label with ``normalise``.
    """
    right = is_label(jnp.arange(logits.shape[1])[None], labels)
    loss = jnp.where(right, -jax.nn.log_softmax(_float32(logits), axis=1), 0).sum(axis=1)
    if normalise:
        loss /= jnp.maximum(right.sum(axis=1), 1)
    return _mean(loss, weights)


def triplet_margin(
    anchor: Float[Array, "B d"],
    positive: Float[Array, "B d"],
    negative: Float[Array, "B d"],
    *,
    margin: float = 1.0,
    unit: bool = False,
    weights: Float[Array, " B"] | None = None,
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
      weights: weights of the rows [B]; None: 1 each.

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
    return _mean(jax.nn.relu(short), weights)


def info_nce(
    queries: Float[Array, "B d"],
    documents: Float[Array, "B d"],
    labels: Int[Array, "B L"],
    document_labels: Int[Array, " B"],
    negatives: Float[Array, "B m d"] | None = None,
    negative_labels: Int[Array, "B m"] | None = None,
    *,
    temperature: float,
    in_batch: bool = True,
    weights: Float[Array, " B"] | None = None,
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
      weights: weights of the rows [B]; None: 1 each. Rows of weight 0 are negatives of no row.

    Returns:
      the mean over rows [], in nats.

    Raises:
      ValueError: if only one of ``negatives`` and ``negative_labels`` is given, if there are no
        negatives at all, or for a temperature that is not above 0.
    """
    require("temperature", temperature, "> 0", lambda x: x > 0)
    if negatives is None and negative_labels is None:
        if not in_batch:
            raise ValueError("without negatives, in_batch must be True: there is nothing else")
        negatives, negative_labels = documents[:, None][:, :0], document_labels[:, None][:, :0]
    elif negatives is None or negative_labels is None:
        raise ValueError("negatives and negative_labels belong together: give both or neither")
    queries, documents, negatives = (_float32(x) for x in (queries, documents, negatives))

    right = (queries * documents).sum(axis=1, keepdims=True) / temperature
    if in_batch:
        tools = jnp.concatenate([document_labels[:, None], negative_labels], axis=1)
        if weights is not None:
            tools = jnp.where(weights[:, None] > 0, tools, -1)
        tools = tools.reshape(1, -1)
        others = jnp.concatenate([documents[:, None], negatives], axis=1)
        scores = queries @ others.reshape(-1, others.shape[2]).T / temperature
    else:
        tools = negative_labels
        scores = jnp.einsum("bd,bmd->bm", queries, negatives) / temperature
    own = jnp.concatenate([labels, document_labels[:, None]], axis=1)
    wrong = (tools >= 0) & ~is_label(tools, own)
    scores = jnp.concatenate([right, jnp.where(wrong, scores, -jnp.inf)], axis=1)
    return _mean(jax.nn.logsumexp(scores, axis=1) - right[:, 0], weights)


def _mean(rows, weights):
    if weights is None:
        return rows.mean()
    total = weights.sum()
    return (rows * weights).sum() / jnp.where(total > 0, total, 1)


def _float32(x):
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _length(x):
    """Return Euclidean lengths, with a gradient of 0 at the zero vector."""
    return jnp.sqrt(jnp.maximum((x * x).sum(axis=1), 1e-24))
