"""Protocols of `experiments.transfer` for one learner: online, and on unseen phrasings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.learners import chosen
from experiments.common.run_directory import RunDirectory
from jaxret.learners.grid import LearnerGrid
from jaxret.task import Parts, Task

Results = dict[str, np.ndarray]  # one value per seed
Setting = Float[np.ndarray, "S n"]


@dataclass(frozen=True)
class Protocol:
    """The task, parts and seeds that all learners share."""

    cfg: DictConfig
    run: RunDirectory
    task: Task
    parts: Parts
    seeds: range

    @property
    def metric(self) -> str:
        """Name of nDCG at the experiment's cut."""
        return f"ndcg@{self.cfg.k}"

    @property
    def stream(self) -> dict[str, Any]:
        """Arguments of `jr.simulate` and `jr.sweep`."""
        hops = bool(self.cfg.dataset.get("hops"))
        shared = {"exposures": self.cfg.exposures, "chunk": self.cfg.chunk, "hops": hops}
        return {**shared, "seeds": self.seeds}

    def ndcg(self, ranked: Any, part: Bool[np.ndarray, "S N"]) -> Float[np.ndarray, " S"]:
        """Rank a part of each seed's queries by a run; or by rows, which may differ by seed."""
        if isinstance(ranked, np.ndarray) and ranked.ndim == 3:
            pairs = zip(ranked, part, strict=True)
            return np.concatenate([self.ndcg(rows, own[None]) for rows, own in pairs])
        return jr.evaluate(ranked, self.task, [self.metric], part=part)[self.metric].values

    def of_seed(self, seed: int) -> "Protocol":
        """Return the protocol for one seed."""
        at = self.seeds.index(seed)
        parts = Parts(*(masks[at : at + 1] for masks in self.parts))
        return replace(self, seeds=range(seed, seed + 1), parts=parts)


def online(
    protocol: Protocol, step: str, grid: LearnerGrid
) -> tuple[Results, Float[np.ndarray, "S T"]]:
    """Measure success while a learner learns, and ranking and row norms afterwards.

    ``norms/used`` is the mean norm of the right tools over the queries of the stream. It exceeds
    ``norms/mean``, the mean over tools, if the rows of frequently needed tools are longer.

    Returns:
      results, and the success of every round.
    """
    task, parts, run, stream = protocol.task, protocol.parts, protocol.run, protocol.stream

    def compute():
        best = chosen(
            *(grid, task),
            on=parts.validation,
            metric=protocol.metric,
            resume=run.resume(f"{step}-online", "choice"),
            **stream,
        )
        resume = run.resume(f"{step}-online", "stream")
        ran = jr.simulate(best, task, part=parts.streamed, resume=resume, **stream)
        return {
            "success": ran.trace.success,
            "setting": ran.numbers,
            "final": protocol.ndcg(ran, parts.streamed),
            "norms": np.linalg.norm(ran.states.theta, axis=2),
        }

    found = run.result(f"{step}-online", compute)
    right = [task.labels[mask] for mask in parts.streamed]
    uses = [np.bincount(some[some >= 0], minlength=len(task.theta)) for some in right]
    norms = found["norms"].astype(np.float64)
    results = {
        "online/accuracy": np.nanmean(found["success"], axis=1),
        **{f"online/{name}": x for name, x in grid.columns(found["setting"]).items()},
        f"final/{protocol.metric}": found["final"],
        "norms/mean": norms.mean(axis=1),
        "norms/spread": norms.std(axis=1),
        "norms/used": (norms * uses).sum(axis=1) / np.sum(uses, axis=1),
    }
    return results, found["success"]


def unseen(
    protocol: Protocol,
    step: str,
    grid: LearnerGrid,
    more: Callable[[Float[np.ndarray, "S I d"]], Mapping[str, np.ndarray]],
) -> tuple[Results, Setting, dict[str, np.ndarray]]:
    """Stream only the training part, and rank that and the held-out part.

    Returns:
      results; the setting of each seed, chosen on its validation part; and what ``more`` gave.
    """
    parts, run = protocol.parts, protocol.run

    def compute():
        resume = run.resume(f"{step}-unseen")
        swept = jr.sweep(grid, protocol.task, part=parts.training, resume=resume, **protocol.stream)
        ran = swept.best(on=parts.validation, metric=protocol.metric)
        return {
            "setting": np.broadcast_to(ran.numbers, (len(protocol.seeds), len(grid.names))),
            "seen": protocol.ndcg(ran, parts.training),
            "heldout": protocol.ndcg(ran, parts.heldout),
            **more(np.asarray(ran.states.theta)),
        }

    found, theta = run.result(f"{step}-unseen", compute), protocol.task.theta
    gains = {
        "seen": found["seen"] - protocol.ndcg(theta, parts.training),
        "heldout": found["heldout"] - protocol.ndcg(theta, parts.heldout),
    }
    results = {f"{part}/{protocol.metric}": found[part] for part in gains}
    results |= {f"{part}/gain": gain for part, gain in gains.items()}
    if gains["seen"].mean() > 0:  # the ratio needs a positive gain
        results["heldout/share"] = gains["heldout"] / gains["seen"].mean()
    return results, found["setting"], found
