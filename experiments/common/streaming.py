"""What experiments that stream queries to learners share: streams, parts and measures."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import plain
from experiments.common.environments import environment_of
from jaxret.data.near_duplicates import near
from jaxret.task import Parts, Task
from jaxret.theory.regret import cumulative_regret


def ranking_metrics(k: int) -> list[str]:
    """Return the names of the metrics of a ranking."""
    return ["accuracy", f"recall@{k}", f"ndcg@{k}", f"completeness@{k}"]


def stream_of(cfg: DictConfig, task: Task, parts: Parts, exposures: int) -> dict[str, Any]:
    """Make the arguments of `jr.simulate` and `jr.sweep`, in the environment that a config names.

    Args:
      cfg: config with ``environment``, whose times are shares of the longest stream of a seed.
      task: task that is streamed.
      parts: its parts.
      exposures: number of times that each query is streamed.
    """
    rounds = exposures * int(parts.streamed.sum(axis=1).max())
    sizes = {"items": len(task.ids), "rounds": rounds, "seed": cfg.seed}
    return {
        "exposures": exposures,
        "environment": environment_of(plain(cfg.environment), **sizes),
        "seeds": range(cfg.seed, cfg.seed + cfg.seeds),
        "chunk": cfg.chunk,
        "hops": bool(cfg.dataset.get("hops")),
    }


def unseen_parts(task: Task, parts: Parts) -> dict[str, Bool[np.ndarray, "S N"]]:
    """Return the held-out queries; also near-duplicates of training queries, and the others.

    Returns:
      ``heldout``; and if each seed has queries of both kinds, ``heldout_near`` and ``heldout_new``.
    """
    close = near(task.texts or (), parts.heldout, parts.training)
    kinds = {"heldout_near": close, "heldout_new": parts.heldout & ~close}
    both = all(mask.any(axis=1).all() for mask in kinds.values())
    return {"heldout": parts.heldout} | (kinds if both else {})


def accuracy_of(
    learner: jr.Learner, task: Task, seeds: Sequence[int]
) -> dict[str, Float[np.ndarray, " S"]]:
    """Simulate a learner; return its accuracy ``online`` of each seed."""
    return {"online": jr.simulate(learner, task, seeds=seeds).accuracy.values}


def measured_online(run: jr.Run, comparator: Float[np.ndarray, " N"]) -> dict[str, np.ndarray]:
    """Measure a learner while it learns, against a comparator with one loss per query.

    Returns:
      the curves ``success``, ``regret`` and ``unneeded`` (whether the tool shown is right for no
      query at all), their ``order``, each [S, T]; and ``online/MEASURE`` [S].
    """
    order, (success, loss) = run.order, map(np.asarray, (run.trace.success, run.trace.loss))
    unneeded = np.where(order >= 0, ~np.isin(run.trace.item, run.task.labels), np.nan)
    regret = cumulative_regret(loss, comparator, order)
    found = {"order": order, "success": success, "unneeded": unneeded, "regret": regret}
    found["online/regret"] = regret[:, -1]
    for name, curve in (("accuracy", success), ("loss", loss), ("unneeded", unneeded)):
        found[f"online/{name}"] = np.nanmean(curve, axis=1)
    return found
