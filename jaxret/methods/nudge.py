"""NUDGE: tool embeddings moved towards the queries that used them, by a validated distance.

    retriever = fit(train, Config(form="n"), validation=validation)

With unit rows e_i, and g_i the sum of the training queries with label i, scaled to length 1, both
forms maximise the sum of q . e'_i over the pairs of query and label, within a distance of e_i:

    NUDGE-M    e'_i = e_i + gamma g_i                            ||e'_i - e_i|| <= gamma
    NUDGE-N    e'_i = g_i                                        where g_i is within reach
               e'_i = (1 - gamma / 2) e_i + sqrt(gamma (4 - gamma)) / 2 u_i              else,
                      u_i = g_i - (e_i . g_i) e_i at length 1    ||e'_i - e_i||^2 <= gamma,
                                                                 ||e'_i|| = 1

(Zeighami, Wellmer and Parameswaran 2024.) One gamma serves all rows: the smallest that ranks a
label first for the most validation queries, found exactly for M and on a grid for N. Rows without a
training query stay unchanged. Under N, rows with e_i . g_i < 0 stay too, as in the reference,
although turning them would raise the objective.

Either form is ``e'_i = a_i e_i + b_i g_i``, so validation needs the products of its queries with e
and g once, rather than one catalogue for each gamma.

Letters: N training queries, V validation queries, I tools, L labels per query, d width.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxret.methods.tool2vec import unit_rows, usage
from jaxret.retrieval.dense import dense
from jaxret.retrieval.retriever import Retriever
from jaxret.runtime.validate import require, require_one_of
from jaxret.task import Task

GRID = tuple(0.02 * step for step in range(25))  # values of gamma, for NUDGE-N
_BATCH = 16  # validation queries at a time: 16 x L x I numbers


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of NUDGE.

    Raises:
      ValueError: for an unknown form.
    """

    form: Literal["m", "n"] = "n"  # NUDGE-M or NUDGE-N

    def __post_init__(self):
        require_one_of("form", self.form, FORMS)


def fit(
    task: Task, config: Config, *, validation: Task, name: str = "nudge", cache: Path | None = None
) -> Retriever:
    """Move the document embeddings of a task towards its training queries.

    Args:
      task: the training queries and their tools, which decide the directions.
      config: the form.
      validation: the queries on which gamma is chosen.
      name: shown in the progress bar and in errors.
      cache: folder for the vectors of new queries; None keeps nothing.

    Returns:
      a retriever of texts, or of vectors if the task has no encoder.
    """
    theta, _ = jax.jit(FORMS[config.form])(
        task.theta, task.queries, task.labels, validation.queries, validation.labels
    )
    retriever = dense(name, np.asarray(theta), task.encoder, cache=cache)
    return retriever._replace(config=config)


def nudge_m(
    theta: Float[Array, "I d"],
    queries: Float[Array, "N d"],
    labels: Int[Array, "N L"],
    val_queries: Float[Array, "V d"],
    val_labels: Int[Array, "V M"],
) -> tuple[Float[Array, "I d"], Float[Array, ""]]:
    """Compute NUDGE-M: every used tool moves by the same distance.

    At a gamma above 0 a validation label ties with its rival; just above it that label ranks first.

    Args:
      theta: tool embeddings [I, d], of any length; they are first scaled to length 1.
      queries: vectors of the training queries [N, d].
      labels: their tools [N, L], padded with -1.
      val_queries: vectors of other queries, on which gamma is chosen [V, d].
      val_labels: their tools [V, M], padded with -1.

    Returns:
      the embeddings [I, d], for inner products and no longer of length 1; and gamma [], the
      distance that each used tool moved.

    Raises:
      ValueError: without validation queries.
    """
    theta, towards = _directions(theta, queries, labels, val_queries)

    def wins(one):
        """Return the gammas between which each label of a query is the best of all items."""
        query, right = one
        s, h = theta @ query, towards @ query
        ahead, slower = s[None] - s[right][:, None], h[right][:, None] - h[None]  # [L, I]
        level = jnp.abs(slower) <= 8 * jnp.finfo(h.dtype).eps
        crossing = ahead / jnp.where(level, 1, slower)
        start = jnp.where(~level & (slower > 0), crossing, 0).max(axis=1)  # at least 0
        stop = jnp.where(~level & (slower < 0), crossing, jnp.inf).min(axis=1)
        never = (right < 0) | (level & (ahead > 0)).any(axis=1) | (stop <= start)
        return jnp.where(never, jnp.inf, start), jnp.where(never, jnp.inf, stop)

    start, stop = jax.lax.map(wins, (val_queries, val_labels), batch_size=_BATCH)
    start, stop = jnp.sort(start.reshape(-1)), jnp.sort(stop.reshape(-1))
    begun, over = (jnp.searchsorted(ends, start, side="right") for ends in (start, stop))
    winning = begun - over  # labels that win just after each start: the count grows nowhere else
    gamma = jnp.where(winning.max() > 0, start[winning.argmax()], 0)
    return theta + gamma * towards, gamma


def nudge_n(
    theta: Float[Array, "I d"],
    queries: Float[Array, "N d"],
    labels: Int[Array, "N L"],
    val_queries: Float[Array, "V d"],
    val_labels: Int[Array, "V M"],
) -> tuple[Float[Array, "I d"], Float[Array, ""]]:
    """Compute NUDGE-N: tools turn on the unit sphere, each by the same angle at most.

    Args:
      theta: tool embeddings [I, d], of any length; they are first scaled to length 1.
      queries: vectors of the training queries [N, d].
      labels: their tools [N, L], padded with -1.
      val_queries: vectors of other queries, on which gamma is chosen [V, d].
      val_labels: their tools [V, M], padded with -1.

    Returns:
      unit embeddings [I, d]; and gamma [], the largest squared distance of a row, from `GRID`.

    Raises:
      ValueError: without validation queries.
    """
    theta, towards = _directions(theta, queries, labels, val_queries)
    cosine = (theta * towards).sum(axis=1)
    moves = (cosine >= 0) & (towards != 0).any(axis=1)
    sine = jnp.sqrt(jnp.maximum(1 - cosine**2, jnp.finfo(cosine.dtype).eps))
    grid = jnp.asarray(GRID, theta.dtype)

    def weights(gamma):
        reached = cosine >= 1 - gamma / 2
        turn = jnp.sqrt(gamma * (4 - gamma)) / 2 / sine
        a = jnp.where(reached, 0, 1 - gamma / 2 - turn * cosine)
        b = jnp.where(reached, 1, turn)
        return jnp.where(moves, a, 1), jnp.where(moves, b, 0)

    a, b = jax.vmap(weights)(grid)  # [gamma, I]

    def first_is_right(one):
        query, right = one
        first = (a * (theta @ query)[None] + b * (towards @ query)[None]).argmax(axis=1)
        return (first[:, None] == right[None]).any(axis=1)

    hits = jax.lax.map(first_is_right, (val_queries, val_labels), batch_size=_BATCH)
    best = hits.sum(axis=0).argmax()  # the smallest gamma in a tie
    return a[best][:, None] * theta + b[best][:, None] * towards, grid[best]


FORMS = {"m": nudge_m, "n": nudge_n}


def _directions(theta, queries, labels, val_queries):
    """Return the rows e and the directions g; g is 0 for tools without training queries."""
    require("the number of validation queries", len(val_queries), ">= 1", lambda n: n >= 1)
    _, sums = usage(queries, labels, len(theta))
    return unit_rows(theta), unit_rows(sums)
