"""Does retrieval get better from one success bit per query?   (ORAG Sections 3 and 4, C.3, C.5.1)

    uv run python -m experiments.orag                                   # DeskBank, built in
    uv run python -m experiments.orag dataset=ultratool dataset.path=FILE exposures=1
    uv run python -m experiments.orag -m document=terse,full,expanded   # a sweep

Compares static retrieval, ORAG, its chosen-only variant, a clipped and a greedy rule, Banditron,
the paper's own settings and the full-information oracle:

    online    success of the item shown, before the round's update; regret
    final     ranking of the streamed queries by the final embeddings
    heldout   ranking of queries that were never streamed, after a stream of the training part, and
              its gain in nDCG over the documents'; if some are near-duplicates of streamed queries,
              also separately for these (heldout_near) and the others (heldout_new)

Each seed splits the queries, by question, into validation, held-out and training parts, has its own
order and draws, and chooses the setting (tau, eta) of each learner on its validation part: for
`heldout` by nDCG after a stream without that part; for `online` and `final` by nDCG and success in
a stream with it. ± therefore covers the split, the choice, the order and the draws. ``choosing``
selects the second stream: ``all`` queries, as in a deployment before the reported one, or only the
``validation`` part, which uses no reward of a reported query. The final embeddings of the first
seed of each learner are saved in ``embeddings/LEARNER``.

2 cores: DeskBank 55 s in a fresh clone, encoding included. Expect there (five exposures, 5 seeds):
final nDCG@10 0.379 for frozen, 0.466 for orag, 0.598 for greedy, 1.000 for full_information;
held-out gains of 0.039, 0.068 and 0.191.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import learner_grids, plain
from experiments.common.environments import environment_of
from experiments.common.experiment import Found, Results, experiment
from experiments.common.figures import learning_figures
from experiments.common.learners import chosen
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import print_table, results_table
from jaxret.data import near_duplicates
from jaxret.learners.grid import LearnerGrid
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.task import Parts, Task
from jaxret.theory.comparators import proximal_losses
from jaxret.theory.regret import cumulative_regret

COLUMNS = ("online/accuracy", "online/regret", "final/recall@{k}", "final/ndcg@{k}")
COLUMNS += ("online/complete", "heldout/recall@{k}", "heldout/ndcg@{k}", "heldout/gain")
METRICS = ("accuracy", "recall@{k}", "ndcg@{k}", "completeness@{k}")
CURVES = ("success", "regret", "unneeded")


@experiment("orag")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Stream to every learner in every protocol; write curves and figures."""
    task, seeds = task_of(cfg), range(cfg.seed, cfg.seed + cfg.seeds)
    parts = task.parts(validation=cfg.validation, heldout=cfg.heldout, seeds=seeds)
    unseen = {"heldout": parts.heldout, **near_and_new(task, parts)}
    rounds = cfg.exposures * int(parts.streamed.sum(axis=1).max())
    environment = environment_of(
        plain(cfg.environment), items=len(task.theta), rounds=rounds, seed=cfg.seed
    )
    stream: dict[str, Any] = {"exposures": cfg.exposures, "hops": bool(cfg.dataset.get("hops"))}
    stream |= {"environment": environment, "seeds": seeds, "chunk": cfg.chunk}
    metrics, ndcg = [name.format(k=cfg.k) for name in METRICS], f"ndcg@{cfg.k}"
    static = jr.evaluate(task.theta, task, [ndcg], part=parts.heldout)[ndcg].values
    _, comparator = proximal_losses(
        *(task.theta, task.queries, task.labels),
        tau=cfg.comparator.tau,
        eta=cfg.comparator.tau * cfg.comparator.eta_over_tau,
        counts=np.full(len(task.queries), cfg.exposures),
    )

    def learn(grid: LearnerGrid) -> dict[str, np.ndarray]:
        """Choose settings, stream and rank, for one learner."""
        resume = partial(run.resume, grid.name)
        by = dict[str, Any](on=parts.validation, metric=ndcg)
        swept = jr.sweep(grid, task, part=parts.training, resume=resume("heldout"), **stream)
        held = swept.best(**by)
        by["part"] = parts.validation | (cfg.choosing == "all")
        best = chosen(grid, task, **by, resume=resume("choice"), **stream)
        online = jr.simulate(best, task, part=parts.streamed, resume=resume("online"), **stream)
        online.save(run.directory / "embeddings" / grid.name)
        ranked = {"final": (online, parts.streamed)}
        ranked |= {protocol: (held, part) for protocol, part in unseen.items()}
        found = streamed(online, comparator, cfg.exposures if stream["hops"] else None)
        for protocol, (learner, part) in ranked.items():
            values = jr.evaluate(learner, task, metrics, part=part)
            found |= {f"{protocol}/{metric}": x.values for metric, x in values.items()}
        for protocol, learner in (("online", online), ("heldout", held)):
            numbers = grid.columns(learner.numbers)
            found |= {f"{protocol}/{number}": x for number, x in numbers.items()}
        return found | {"heldout/gain": found[f"heldout/{ndcg}"] - static}

    results, curves = {}, {}
    for grid in (bar := Progress(learner_grids(cfg), unit="learner")):
        bar.set_postfix_str(name := grid.name)
        found = run.result(name, partial(learn, grid))
        curves[name] = {curve: found[curve] for curve in CURVES}
        results |= {f"{name}/{key}": value for key, value in found.items() if "/" in key}
    run.save_curves(curves)
    learning_figures(run, curves)
    return results


def streamed(run: jr.Run, comparator: Float[np.ndarray, " N"], exposures: int | None) -> dict:
    """Compute the curves [S, T] of a stream, and its results [S]   (protocol ``online``).

    Args:
      run: run of S seeds.
      comparator: loss of the comparator of the regret, by query.
      exposures: number of times that each query is streamed, if the queries are hops; else None.
    """
    success, loss, item = map(np.asarray, (run.trace.success, run.trace.loss, run.trace.item))
    order, regret = run.order, cumulative_regret(loss, comparator, run.order)
    unneeded = np.where(order >= 0, ~np.isin(item, run.task.labels), np.nan)
    found = {"order": order, "success": success, "regret": regret, "unneeded": unneeded}
    for name, curve in (("accuracy", success), ("loss", loss), ("unneeded", unneeded)):
        found[f"online/{name}"] = np.nanmean(curve, axis=1)
    if exposures is not None:
        found["online/complete"] = complete(success, order, np.asarray(run.task.groups), exposures)
    return found | {"online/regret": regret[:, -1]}


@main.check
def check(cfg: DictConfig) -> None:
    """Check learners and environments."""
    learner_grids(cfg)
    environment_of(plain(cfg.environment), items=1000, rounds=1000, seed=0)
    require("choosing", cfg.choosing, "all or validation", ("all", "validation").__contains__)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line per learner, and the settings that its seeds chose."""
    names = list(cfg.learners)
    columns = [column.format(k=cfg.k) for column in COLUMNS]
    columns = [column for column in columns if f"{names[0]}/{column}" in results]
    title = f"{cfg.dataset.name}, {cfg.document}, exposures={cfg.exposures}"
    results_table(results, names, columns, title)
    numbers = {grid.name: grid.names for grid in learner_grids(cfg)}
    print_table(
        "settings chosen, and by how many seeds",
        ["online, final", "heldout"],
        {
            n: [choices(results, f"{n}/{part}", numbers[n]) for part in ("online", "heldout")]
            for n in names
        },
    )


def choices(results: Found, name: str, numbers: Sequence[str]) -> str:
    """Format the settings that seeds chose, the most frequent first."""
    settings = zip(*(results[f"{name}/{number}"]["values"] for number in numbers), strict=True)
    words = (", ".join(f"{n} {x:.3g}" for n, x in zip(numbers, s, strict=True)) for s in settings)
    return "\n".join(f"{setting}  x{count}" for setting, count in Counter(words).most_common())


def near_and_new(task: Task, parts: Parts) -> Mapping[str, Bool[np.ndarray, "S N"]]:
    """Split held-out queries into near-duplicates of streamed ones, and new ones.

    Return an empty mapping if a seed lacks one of the kinds.
    """
    pairs = zip(parts.heldout, parts.training, strict=True)
    near = np.stack([near_duplicates.near(task.texts or (), *pair) for pair in pairs])
    masks = {"heldout_near": near, "heldout_new": parts.heldout & ~near}
    return masks if all(mask.any(axis=1).all() for mask in masks.values()) else {}


def complete(
    success: Float[np.ndarray, "S T"],
    order: Int[np.ndarray, "S T"],
    questions: Int[np.ndarray, " N"],
    exposures: int,
) -> Float[np.ndarray, " S"]:
    """Compute the share of questions whose hops all succeeded while they were streamed."""

    def share(bits, queries):
        ran = queries >= 0
        visits = zip(*(x[ran].reshape(exposures, -1) for x in (bits, queries)), strict=True)
        return np.mean([jr.by_question(b, questions[q]).mean() for b, q in visits])

    return np.array([share(*pair) for pair in zip(success, order, strict=True)])


if __name__ == "__main__":
    main.cli()
