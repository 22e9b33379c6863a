"""Refusing bad input where it enters: the name, the value, the allowed range."""

import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike


def require(name: str, value, allowed: str, holds) -> None:
    """Raises ValueError unless ``holds(value)``.

    Traced values pass: a grid of settings is checked before it enters a program.
    """
    if isinstance(value, Tracer):
        return
    if not holds(value):
        raise ValueError(f"{name} must be {allowed}, got {value}")


def require_task(theta: ArrayLike, queries: ArrayLike, labels: ArrayLike) -> None:
    """Raises ValueError unless embeddings and labels belong together; on the host, once a run.

    Args:
      theta: item embeddings, [I, d], finite.
      queries: query embeddings, [N, d], finite.
      labels: [N, L], positions below I, -1 pads.
    """
    shapes = [np.shape(x) for x in (theta, queries, labels)]
    if [len(shape) for shape in shapes] != [2, 2, 2]:
        raise ValueError(f"theta, queries and labels must be [I, d], [N, d], [N, L], got {shapes}")
    (items, width), (n, query_width), (n_labels, _) = shapes
    if width != query_width:
        raise ValueError(f"items have {width} numbers and queries {query_width}: encode both alike")
    if n != n_labels:
        raise ValueError(f"there are {n} queries and labels for {n_labels}")
    for name, rows in {"theta": theta, "queries": queries}.items():
        bad = ~np.isfinite(np.asarray(rows)).all(axis=1)
        if bad.any():
            raise ValueError(f"row {bad.argmax()} of {name} is not finite ({bad.sum()} such rows)")
    out = (np.asarray(labels) < -1) | (np.asarray(labels) >= items)
    if out.any():
        row = int(out.any(axis=1).argmax())
        theirs = np.asarray(labels)[row].tolist()
        raise ValueError(f"query {row} has the labels {theirs}: outside -1 .. {items - 1}")


def require_reward(reward: ArrayLike) -> None:
    """Raises ValueError unless every bit is a finite number; for rewards that come from outside.

    One NaN would spread to every row of Theta at the next update.
    """
    bad = ~np.isfinite(np.asarray(reward, np.float64))
    if bad.any():
        raise ValueError(f"a reward must be a finite number, 0 or 1 as a rule, got {reward}")
