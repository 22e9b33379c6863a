"""Runs one learner from one start, and compares starts.

A learner streams twice: at its own setting, for success and rankings, and at one setting that all
starts share, for regret, which depends on tau and eta as well as on Theta_1.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.run_directory import RunDirectory
from jaxret.evaluation import plots
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.rank_one import rule_of
from jaxret.task import Parts, Task
from jaxret.theory import theorems
from jaxret.theory.assumptions import Evidence
from jaxret.theory.comparators import proximal_losses
from jaxret.types import Stream, Trace

METRICS = ("accuracy", "recall@{k}", "ndcg@{k}", "completeness@{k}")
Setting = tuple[float, float]  # tau, eta


@dataclass(frozen=True)
class Starts:
    """The task, parts and settings that all starts share.

    Attributes:
      cfg: settings of the experiment.
      run: the run's directory.
      task: the base.
      parts: parts of its queries, masks [N].
    """

    cfg: DictConfig
    run: RunDirectory
    task: Task
    parts: Parts

    @property
    def stream(self) -> dict[str, Any]:
        """Arguments of `jr.simulate` and `jr.sweep`."""
        seeds = range(self.cfg.seed, self.cfg.seed + self.cfg.seeds)
        return {"exposures": self.cfg.exposures, "seeds": seeds, "chunk": self.cfg.chunk}


class FromStart(NamedTuple):
    """The results of a learner from one start."""

    setting: Setting  # the start's own setting
    success: Float[np.ndarray, "S T"]
    static: Float[np.ndarray, "S T"]  # success in the same rounds with constant Theta_1
    rankings: dict[str, Float[np.ndarray, "S 4"]]  # means of `METRICS`
    loss: Float[np.ndarray, "S T"]  # from this line on: at the setting of the base
    order: Int[np.ndarray, "S T"]
    comparator: Float[np.ndarray, " N"]  # losses of the comparator
    bound: theorems.Bound


def learn_from_start(
    starts: Starts,
    grid: LearnerGrid,
    start: str,
    theta_1: Float[np.ndarray, "I d"],
    shared: Setting | None,
) -> FromStart:
    """Streams at the start's own setting and at the shared one; None: both are the same."""
    run, parts, stream = starts.run, starts.parts, starts.stream
    task, step = replace(starts.task, theta=theta_1), f"{grid.name}-{start}".replace("/", "-")
    metrics = [name.format(k=starts.cfg.k) for name in METRICS]

    def rankings(ranked):
        return {
            name: np.stack(
                [x.values for x in jr.evaluate(ranked, task, metrics, part=part).values()], axis=1
            )
            for name, part in (("final", parts.training), ("heldout", parts.heldout))
        }

    def choice():
        part = parts.training | parts.validation
        swept = jr.sweep(grid, task, part=part, resume=run.resume(f"{step}-choice"), **stream)
        best = swept.best(on=parts.validation, metric=f"ndcg@{starts.cfg.k}")
        return {"setting": best.numbers[0]}

    def streamed(protocol, setting):
        at = grid._replace(settings=np.tile(np.array(setting), (len(stream["seeds"]), 1)))
        resume = run.resume(f"{step}-{protocol}")
        ran = jr.simulate(at, task, part=parts.training, resume=resume, **stream)
        return {**ran.trace._asdict(), "order": ran.order, **rankings(ran)}

    def of_stream(protocol, setting):
        return run.result(f"{step}-{protocol}", partial(streamed, protocol, setting))

    tau, eta = run.result(f"{step}-choice", choice)["setting"].tolist()
    own = of_stream("own", (tau, eta))
    shared = shared or (tau, eta)
    trace = own if shared == (tau, eta) else of_stream("shared", shared)
    rule, order = rule_of(grid.family(*shared)), own["order"]
    assert rule is not None
    arrays = (task.queries, task.labels)
    counts = np.bincount(order[0], minlength=len(task.queries))
    found, losses = proximal_losses(theta_1, *arrays, tau=shared[0], eta=shared[1], counts=counts)
    evidence = Evidence(
        rule=rule,
        theta_1=jnp.asarray(theta_1),
        stream=Stream._make(map(jnp.asarray, (*arrays, order))),
        trace=Trace._make(jnp.asarray(trace[field]) for field in Trace._fields),
        comparator=found.theta,
        always_available=jnp.ones(len(theta_1), bool),
    )
    unlearnt = rankings(theta_1)
    best = (task.queries @ theta_1.T).argmax(axis=1)
    return FromStart(
        setting=(tau, eta),
        success=own["success"],
        static=(task.labels == best[:, None]).any(axis=1).astype(np.float64)[order],
        rankings={
            "static": unlearnt["final"],
            "final": own["final"],
            "heldout_static": unlearnt["heldout"],
            "heldout": own["heldout"],
        },
        loss=trace["loss"],
        order=order,
        comparator=losses,
        bound=theorems.theorem_5_1(evidence),
    )


def levels(ours: FromStart, k: int) -> dict[str, np.ndarray]:
    """Names the accuracy and rankings from one start, as results."""
    found = {
        f"{protocol}/{metric.format(k=k)}": values[:, i]
        for protocol, values in ours.rankings.items()
        for i, metric in enumerate(METRICS)
    }
    found["online/accuracy"] = ours.success.mean(axis=1)
    found["online/tau"], found["online/eta"] = np.array(ours.setting)[:, None]
    found["shared/first_term"] = np.array([ours.bound.terms["start"]])
    if ours.bound.holds:
        found["shared/theorem_5_1"] = np.array([ours.bound.value])
    return found


def leads(ours: FromStart, base: FromStart) -> dict[str, np.ndarray]:
    """Computes the lead of a start over the base, in rounds and in success, as results.

    The lead in rounds is the number of rounds that the statically worse of the two must learn until
    its success is never again below that of the other without learning (`rounds_until`; same
    queries, running means over a tenth of the stream). It is negative if the start is worse.
    """
    gain = ours.success - base.success
    quarter = gain.shape[1] // 4
    found = {
        "lead/first": gain[:, :quarter].mean(axis=1),
        "lead/last": gain[:, -quarter:].mean(axis=1),
    }
    ahead = ours.static.mean() >= base.static.mean()
    better, worse = (ours, base) if ahead else (base, ours)
    rounds = rounds_until(worse.success - better.static, window=gain.shape[1] // 10)
    if rounds is not None:
        found["rounds_to_match"] = np.array([rounds if ahead else -rounds])
    return found


def rounds_until(difference: Float[np.ndarray, "S T"], window: int) -> int | None:
    """Returns the rounds after which a difference is never negative again; None if it ends so.

    The difference is averaged over the seeds and the last ``window`` rounds.
    """
    negative = plots.running_mean(difference, window).mean(axis=0) < 0
    if negative[-1]:
        return None
    return int(np.flatnonzero(negative)[-1]) + 1 if negative.any() else 0


def saved(less: Float[np.ndarray, "S T"]) -> dict[str, np.ndarray]:
    """Computes the base's regret minus a start's, at three points of the stream, as results."""
    rounds = less.shape[1]
    points = {"quarter": rounds // 4, "half": rounds // 2, "whole": rounds}
    return {f"saved/{name}": less[:, point - 1] for name, point in points.items()}
