"""Do the paper's own settings learn, at the paper's scale?       (ORAG Table 1, Figure 11a, C.2)

    uv run python -m experiments.paper_settings
    uv run python -m experiments.paper_settings dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool

The paper's softmax has no temperature (tau = 1). Its Table 1 comes from some 3,000 updates of
AdamW over batches of 5 to 50 rounds, at embeddings of 1,536 and more coordinates. A row is

    adamw/SCHEDULE/WIDTH/BATCH    ``updates`` updates of AdamW, so ``updates * BATCH`` rounds
    no_success/..                 the same, but every reward is 0: what moves without information
    sgd/SCHEDULE/EXPOSURES        Algorithm 1 with Eq. (4), free rows, each query EXPOSURES times
    greedy, orag, ..              a learner of configs/learners.yaml with a temperature, each query
                                  once, its setting chosen on the validation part

AdamW moves each coordinate by about the learning rate, so it learns faster in more coordinates.
WIDTH is that of vectors which repeat the encoder's ``copies`` times, divided by sqrt(copies): all
inner products are the same, so that Algorithm 1 would not notice, and ``copies=4`` gives MiniLM's
384 coordinates the width of text-embedding-3-large. Columns, with the static value taken off each
``gain``:

    rounds            bits of feedback, and ``success``, the share of them that are 1
    gain/..           ranking of the streamed queries (the training part) by the last embeddings
    heldout/gain/..   of queries that are never streamed
    largest           the largest change of a score q . theta
    reordered         share of queries whose first k tools or their order differ afterwards

2 cores, shared with other work: DeskBank 8 minutes, UltraTool 37. Expect on DeskBank gains of
nDCG@10 of at most 0.004 with the paper's settings, and of 0.066 for greedy; on UltraTool 0.035 for
AdamW with 1,536 coordinates (0.046 in the paper), 0.073 for Algorithm 1 with a constant step and 63
exposures, and 0.229 for greedy from one.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import learner_grids
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.environments.environment import judged
from jaxret.evaluation import plots
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.learner import Learner
from jaxret.learners.minibatch import adamw
from jaxret.learners.rank_one import from_rule, rule_of
from jaxret.rules import schedules
from jaxret.runtime.validate import require
from jaxret.task import Parts, Task

SCHEDULES = {"inverse_sqrt": schedules.inverse_sqrt(), "constant": schedules.constant()}
COLUMNS = ("rounds", "success", "gain/ndcg@{k}", "gain/recall@{k}", "heldout/gain/ndcg@{k}")
COLUMNS += ("heldout/gain/recall@{k}", "largest", "reordered")


class Row(NamedTuple):
    """One line of the table.

    Attributes:
      learner: a learner, or a grid from which each seed chooses its setting.
      copies: copies of each vector side by side.
      exposures: number of times that each query is streamed.
      rounds: length at which the stream is cut; None: its end.
      rewarded: False if every reward is 0.
    """

    learner: Learner | LearnerGrid
    copies: int = 1
    exposures: int = 1
    rounds: int | None = None
    rewarded: bool = True


@experiment("paper_settings")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Stream, for each row, to its end; measure gains and moves; draw the figure."""
    task, seeds = task_of(cfg), range(cfg.seed, cfg.seed + cfg.seeds)
    parts = task.parts(validation=cfg.validation, heldout=cfg.heldout, seeds=seeds)
    metrics = [f"ndcg@{cfg.k}", f"recall@{cfg.k}"]
    protocols = {"": parts.training, "heldout/": parts.heldout}

    def ranked(model: Any, task: Task) -> dict[str, Float[np.ndarray, " S"]]:
        return {
            f"{protocol}{metric}": np.broadcast_to(found.values, len(seeds))
            for protocol, part in protocols.items()
            for metric, found in jr.evaluate(model, task, metrics, part=part).items()
        }

    static = ranked(task.theta, task)

    def measure(name: str, row: Row) -> dict[str, np.ndarray]:
        own = widened(task, row.copies)
        stream: dict[str, Any] = {"seeds": seeds, "chunk": cfg.chunk, "exposures": row.exposures}
        if not row.rewarded:
            stream["environment"] = judged(np.zeros((len(own), len(own.theta))))
        stream |= {"part": parts.training, "resume": run.resume(name)}
        if isinstance(row.learner, LearnerGrid):
            ran = jr.sweep(row.learner, own, **stream).best(on=parts.validation, metric=metrics[0])
        else:
            ran = jr.simulate(row.learner, own, rounds=row.rounds, **stream)
        gains = {
            key.replace("/", "/gain/") if "/" in key else f"gain/{key}": value - static[key]
            for key, value in ranked(ran, own).items()
        }
        success = np.asarray(np.nanmean(ran.trace.reward, axis=1, dtype=np.float64))
        rounds = (ran.order >= 0).sum(axis=1)
        return gains | {"rounds": rounds, "success": success} | moves(ran, cfg.k)

    results = {f"static/{key}": value for key, value in static.items()}
    steps = {name: partial(measure, name, row) for name, row in rows(cfg, task, parts)}
    for name, found in run.results(steps, "row"):
        results |= {f"{name}/{key}": value for key, value in found.items()}
    figure(cfg, run, results)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check learners, schedules, sizes and numbers of rounds."""
    learner_grids(cfg)
    for name in ("updates", "batch"):
        require(name, cfg[name], ">= 1", lambda n: n >= 1)
    require("schedules", list(cfg.schedules), "one or more", len)
    known = f"one of {', '.join(SCHEDULES)}"
    for name in cfg.schedules:
        require("schedules", name, known, SCHEDULES.__contains__)
    for name in ("batches", "copies", "exposures"):
        require(name, list(cfg[name]), "one or more numbers >= 1", lambda x: x and min(x) >= 1)
    require("rate", cfg.rate, "> 0", lambda x: x > 0)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line per row."""
    columns = [column.format(k=cfg.k) for column in COLUMNS]
    names = dict.fromkeys(
        name.removesuffix("/rounds") for name in results if name.endswith("/rounds")
    )
    static = ", ".join(f"{key} {x['mean']:.3f}" for key, x in results.items() if "static/" in key)
    results_table(results, list(names), columns, f"{cfg.dataset.name}; {static}")


def rows(cfg: DictConfig, task: Task, parts: Parts) -> Iterator[tuple[str, Row]]:
    """List the rows of the table.

    All batches have the first schedule and a reward; the other schedules, and the run without
    successes, have the default batch alone.
    """
    first, shortest = cfg.schedules[0], int(parts.training.sum(axis=1).min())

    def trained(schedule: str, copies: int, batch: int, **settings) -> tuple[str, Row]:
        learner = adamw(tau=1.0, eta=cfg.rate, batch=batch, schedule=SCHEDULES[schedule])
        rounds = cfg.updates * batch
        name = f"{schedule}/{copies * task.theta.shape[1]}/{batch}"
        return name, Row(learner, copies, -(-rounds // shortest), rounds, **settings)

    for copies in cfg.copies:
        for schedule in cfg.schedules:
            for batch in cfg.batches if schedule == first else [cfg.batch]:
                name, row = trained(schedule, copies, batch)
                yield f"adamw/{name}", row
    name, row = trained(first, cfg.copies[-1], cfg.batch, rewarded=False)
    yield f"no_success/{name}", row
    for schedule in cfg.schedules:
        learner = jr.paper_sgd(eta=cfg.rate)
        rule = rule_of(learner)
        assert rule is not None
        learner = from_rule("sgd", rule._replace(schedule=SCHEDULES[schedule]))
        for exposures in cfg.exposures:
            yield f"sgd/{schedule}/{exposures}", Row(learner, exposures=exposures)
    for grid in learner_grids(cfg):
        yield grid.name, Row(grid)


def widened(task: Task, copies: int) -> Task:
    """Repeat every vector side by side, so that all inner products stay the same."""
    theta, queries = (
        np.tile(x / np.sqrt(copies), copies).astype(np.float32) for x in (task.theta, task.queries)
    )
    return replace(task, theta=theta, queries=queries)


def moves(run: jr.Run, k: int) -> dict[str, Float[np.ndarray, " S"]]:
    """Compute how far the scores of all queries moved, and how many lists of k they reordered.

    Returns:
      ``largest`` and ``reordered`` [S].
    """
    task, here = run.task, slice(None) if run.task.available is None else run.task.available
    before = (task.queries @ task.theta.T)[:, here]
    first = top(before, k)
    found: dict[str, list[float]] = {"largest": [], "reordered": []}
    for seed in run.seeds:
        scores = run.learner_of(seed).scores(run.state(seed), jnp.asarray(task.queries))
        after = np.asarray(scores)[:, here]
        found["largest"].append(float(np.abs(after - before).max()))
        found["reordered"].append(float((top(after, k) != first).any(axis=1).mean()))
    return {key: np.array(values) for key, values in found.items()}


def top(scores: Float[np.ndarray, "N I"], k: int) -> Int[np.ndarray, "N k"]:
    """Return the k best items of each query in order; of equal items the first comes first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def figure(cfg: DictConfig, run: RunDirectory, results: dict[str, np.ndarray]) -> None:
    """Draw the gain of the streamed queries over the number of bits, as curves of several rows."""
    drawn, ax = plots.new_figure("bits of feedback", f"gain in nDCG@{cfg.k}, streamed queries")
    names = [name.removesuffix("/rounds") for name in results if name.endswith("/rounds")]
    curves: dict[str, list[str]] = {}
    for name in names:
        curves.setdefault(name.rpartition("/")[0] or name, []).append(name)
    for curve, points in curves.items():
        if len(points) == 1 and "/" in curve:
            continue  # a row beside the curves
        bits = np.array([results[f"{name}/rounds"].mean() for name in points])
        gains = np.stack([results[f"{name}/gain/ndcg@{cfg.k}"] for name in points], axis=1)
        plots.curve_with_band(ax, bits, gains, curve).set(marker="o", markersize=4)
    ax.set(xscale="log")
    plots.label_curves(ax)
    run.save_figure(drawn, "gain")


if __name__ == "__main__":
    main.cli()
