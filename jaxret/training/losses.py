"""Losses: multi-label cross-entropies for tools, margins and contrasts for vectors.

    multi_label_bce    each tool a yes-or-no question             MLC and ToolRefiner, as written
    softmax_ce         the tools compete for each label           MLC, as the reference trains it
    triplet_margin     nearer to a positive than to a negative    Tool2Vec's encoders
    info_nce           the right document among many              Tool-Embed

All return the mean over the rows of a batch, as a scalar, and compute in float32 (or wider)
whatever they are given. ``weights [B]`` is how much each row counts, by default 1: 0 for the rows
that fill up a last batch, whose contents must be finite and then change nothing.

Letters: B rows, I tools, N candidates, L labels a row (padded with -1), m negatives, d width.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxret.runtime.validate import require

_EPS = 1e-6  # PyTorch's, in every coordinate of a difference


def is_label(items: Int[Array, "#B N"], labels: Int[Array, "B L"]) -> Bool[Array, "B N"]:
    """Whether each item is one of its row's labels; -1 is none, on either side.

    Returns:
      True or False for each item of each row [B, N].
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
    """Sigmoid cross-entropy, averaged over the tools of a row.

        mean_i  softplus(-z_i) if i is a label else softplus(z_i)      (Tool2Vec, Sections 4.2, 4.3)

    Args:
      logits: z, a column a tool.
      labels: the right tools; those that have no column are left out.
      candidates: which tool each column is, -1 where there is none; by default column i is
        tool i. A row without any candidate has loss 0.
      weights: see the top of this file.

    Returns:
      the mean over rows [], in nats a tool.
    """
    columns = jnp.arange(logits.shape[1])[None] if candidates is None else candidates
    logits, there = _wide(logits), columns >= 0
    each = jax.nn.softplus(jnp.where(is_label(columns, labels), -logits, logits))
    count = jnp.maximum(there.sum(axis=1), 1)
    return _mean(jnp.where(there, each, 0).sum(axis=1) / count, weights)


def softmax_ce(
    logits: Float[Array, "B I"],
    labels: Int[Array, "B L"],
    *,
    normalise: bool = False,
    weights: Float[Array, " B"] | None = None,
) -> Float[Array, ""]:
    """Cross-entropy of one softmax over all tools, summed over a row's labels.

        - sum_{l in labels}  log softmax(z)_l

    The paper has a 0 or 1 for each tool (Tool2Vec, Section 4.2), which reads as `multi_label_bce`;
    its code, by a default of the library under it, minimises this. The sum lets a query count as
    often as it has labels.

    Args:
      logits: z, a column a tool.
      labels: the right tools; a row without any has loss 0.
      normalise: divides by the number of labels, so that every query counts the same.
      weights: see the top of this file.

    Returns:
      the mean over rows [], in nats: summed over a row's labels, or a label with ``normalise``.
    """
    right = is_label(jnp.arange(logits.shape[1])[None], labels)
    loss = jnp.where(right, -jax.nn.log_softmax(_wide(logits), axis=1), 0).sum(axis=1)
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
    """How far each negative falls short of lying ``margin`` beyond the positive.

        max(0, |a - p + eps| - |a - n + eps| + margin)          eps = 1e-6 in every coordinate

    eps is PyTorch's and keeps the gradient finite where vectors coincide. Tool2Vec's trainer
    compares raw vectors though retrieval then compares unit ones; ``unit`` scales them first.

    Returns:
      the mean over rows [], a distance.
    """
    require("margin", margin, ">= 0", lambda x: x >= 0)
    a, p, n = (_wide(x) for x in (anchor, positive, negative))
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
    """Cross-entropy of finding a query's document among the others.

        - log  e^{q.d+ / tau} / (e^{q.d+ / tau} + sum_j e^{q.d_j / tau})

    The others are the negatives of the row and, ``in_batch``, the documents and negatives of all
    rows. A document of a tool that is a label of the query is never among them: the reference
    lets two queries for one tool push its document away.

    Args:
      queries: q, unit vectors as a rule.
      documents: d+, the document of one of the query's tools.
      labels: all tools of the query.
      document_labels: the tool of each document.
      negatives: further documents for each row.
      negative_labels: their tools, -1 where there is none.
      temperature: tau, above 0.
      in_batch: whether rows serve each other as negatives.
      weights: see the top of this file; rows of weight 0 are nobody's negatives.

    Returns:
      the mean over rows [], in nats.

    Raises:
      ValueError: if negatives come without their tools, or nothing is left to compare with.
    """
    require("temperature", temperature, "> 0", lambda x: x > 0)
    if negatives is None and negative_labels is None:
        if not in_batch:
            raise ValueError("without negatives, in_batch must be True: there is nothing else")
        negatives, negative_labels = documents[:, None][:, :0], document_labels[:, None][:, :0]
    elif negatives is None or negative_labels is None:
        raise ValueError("negatives and negative_labels belong together: give both or neither")
    queries, documents, negatives = (_wide(x) for x in (queries, documents, negatives))

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


def _wide(x):
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _length(x):
    """Euclidean length, with a gradient of 0 at the zero vector."""
    return jnp.sqrt(jnp.maximum((x * x).sum(axis=1), 1e-24))
