"""One learner from one start, and what that is worth beside another start.

It streams twice: at its own setting, where success and rankings are compared, and at one setting
that all starts share, where regret is: that depends on tau and eta as well as on Theta_1.
"""

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxret.data.masks import Masks
from jaxret.simulation.choosing import tune
from jaxret.simulation.ranker import METRICS, Ranker, catalogues
from jaxret.simulation.recording import record
from jaxtyping import Float, Int

from experiments.common.loading import TextTask
from experiments.common.run_directory import RunDirectory
from jaxret.evaluation import plots
from jaxret.learners.grid import LearnerGrid
from jaxret.simulation.engine import Simulation
from jaxret.theory import bounds
from jaxret.theory.assumptions import Evidence
from jaxret.theory.comparators import proximal_losses
from jaxret.types import Stream, Trace

Setting = tuple[float, float]  # tau, eta


class Stage(NamedTuple):
    """What all starts share."""

    run: RunDirectory
    task: TextTask
    parts: Masks
    ranker: Ranker
    seeds: range
    order: Int[np.ndarray, "S T"]  # of the stream
    choosing: Int[np.ndarray, "S R"]  # of the stream and the validation part
    chunk: int


class FromStart(NamedTuple):
    """A learner from one start."""

    setting: Setting  # its own
    success: Float[np.ndarray, "S T"]
    static: Float[np.ndarray, "S T"]  # success in the same rounds if Theta_1 were kept
    rankings: dict[str, Float[np.ndarray, "S 4"]]  # means of `METRICS`
    loss: Float[np.ndarray, "S T"]  # from here on at the setting of the base
    comparator: Float[np.ndarray, " N"]  # losses
    bound: bounds.Bound


def learn_from_start(
    stage: Stage,
    grid: LearnerGrid,
    start: str,
    theta_1: Float[np.ndarray, "I d"],
    shared: Setting | None,
) -> FromStart:
    """Streams at the start's own setting and at the shared one; None: its own is the shared one."""
    run, task, parts, ranker, seeds, order, choosing, chunk = stage
    arrays, unit = (task.queries, task.labels), f"{grid.name}-{start}".replace("/", "-")
    simulation = Simulation(
        grid.make, replace(task, theta=theta_1), seeds=seeds, example=grid.settings[0], chunk=chunk
    )
    tuned = tune(
        run.unit(f"{unit}-choice"),
        grid,
        simulation,
        ranker,
        choosing,
        validation=parts.validation,
    )

    def rankings(states):
        return {"final": ranker(states, parts.training), "heldout": ranker(states, parts.heldout)}

    def stream(protocol, setting):
        return record(
            run.unit(f"{unit}-{protocol}"),
            simulation,
            simulation.setting(*setting),
            order,
            rankings,
        )

    tau, eta = tuned["setting"][0].tolist()  # of all seeds, which share the part that chooses
    own = stream("own", (tau, eta))
    shared = shared or (tau, eta)
    trace = own if shared == (tau, eta) else stream("shared", shared)
    rule = grid.make(*shared).rule
    assert rule is not None
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
    unlearnt = rankings(catalogues(theta_1))
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
        comparator=losses,
        bound=bounds.theorem_5_1(evidence),
    )


def levels(ours: FromStart, k: int) -> dict[str, np.ndarray]:
    """What a learner reached from one start, as results."""
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
    """What a start is worth in rounds and in success beside the base, as results.

    The rounds: of the two, the one that is worse untouched learns, the other does not; counted is
    until, for good, success is no longer below (`rounds_until`; same queries, means of the last
    tenth of the stream). Negative where the start is the worse one.
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
    """The rounds after which a difference is never negative again, to the end of the stream.

    It is averaged over the seeds and the last ``window`` rounds. None if it ends negative.
    """
    negative = plots.running_mean(difference, window).mean(axis=0) < 0
    if negative[-1]:
        return None
    return int(np.flatnonzero(negative)[-1]) + 1 if negative.any() else 0


def saved(less: Float[np.ndarray, "S T"]) -> dict[str, np.ndarray]:
    """Regret of the base less that of a start, at three points of the stream, as results."""
    rounds = less.shape[1]
    points = {"quarter": rounds // 4, "half": rounds // 2, "whole": rounds}
    return {f"saved/{name}": less[:, point - 1] for name, point in points.items()}
