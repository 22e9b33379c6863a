"""Does retrieval get better from one success bit a query?   (ORAG Sections 3 and 4, C.3, C.5.1)

    uv run python -m experiments.orag                                   # DeskBank, built in
    uv run python -m experiments.orag dataset=ultratool dataset.path=FILE exposures=1
    uv run python -m experiments.orag -m document=terse,full,expanded   # a sweep

Static retrieval, ORAG, its chosen-only variant, a clipped and a greedy rule, Banditron, the
paper's own settings and the full-information oracle, side by side:

    online    success of the item shown, scored before the round's update; regret
    final     ranking by the final embeddings of the queries that were streamed
    heldout   ranking of queries never streamed, after a stream of the training part alone, and its
              gain in nDCG over the documents'; where some are near-duplicates of streamed ones,
              these (heldout_near) and the others (heldout_new) also apart

Each seed parts the queries anew, by question, into validation, held-out and training parts, has an
order and draws of its own, and chooses the setting (tau, eta) of each learner on its own validation
part, which none of its numbers touches: for `heldout` by nDCG after a stream without that part; for
`online` and `final` by nDCG and success in a stream that holds it. ± therefore covers the split,
the choice, the order and the draws. ``choosing`` says what that last stream holds: ``all`` queries,
as in a deployment before the one that is reported, or the ``validation`` part alone, which spends
no bit of a query that is reported. What the first seed of each learner ends with goes to
``embeddings/LEARNER``, for `jaxret.load_embeddings`.

2 cores: DeskBank 55 s in a fresh clone, encoding included. Expect there (five exposures, 5 seeds):
final nDCG@10 0.379 for frozen, 0.466 for orag, 0.598 for greedy, 1.000 for
full_information; held-out gains of 0.039, 0.068 and 0.191.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import jax
import numpy as np
from jaxtyping import Float, Int
from omegaconf import DictConfig

from experiments.common.config import learner_grids, plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.figures import learning_figures
from experiments.common.loading import TextTask, load_task
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import print_table, results_table
from jaxret.data import near_duplicates
from jaxret.data.masks import Masks, draw_parts_each
from jaxret.embeddings import from_state
from jaxret.environments.environment import environment_from
from jaxret.learners.learner import Learner
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.simulation.choosing import choose, tune
from jaxret.simulation.engine import Simulation
from jaxret.simulation.ranker import METRICS, Mask, Ranker, catalogues
from jaxret.simulation.recording import record
from jaxret.simulation.streams import by_task, orders
from jaxret.task import Task
from jaxret.theory.comparators import proximal_losses
from jaxret.theory.regret import regret
from jaxret.types import State

COLUMNS = ("online/accuracy", "online/regret", "final/recall@{k}", "final/ndcg@{k}")
COLUMNS += ("online/complete", "heldout/recall@{k}", "heldout/ndcg@{k}", "heldout/gain")
COLUMNS += ("online/microseconds",)
CHOOSING = ("all", "validation")


@experiment("orag")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Streams to every learner in every protocol; writes curves and figures."""
    grids, task = learner_grids(cfg), load_task(cfg)
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    parts = draw_parts_each(task.groups, cfg.validation, cfg.heldout, seeds)
    streamed = ~parts.validation
    _, comparator = proximal_losses(
        *(task.theta, task.queries, task.labels),
        tau=cfg.comparator.tau,
        eta=cfg.comparator.tau * cfg.comparator.eta_over_tau,
        counts=np.full(len(task.queries), cfg.exposures),
    )
    tasks = task.groups if cfg.dataset.get("hops") else None
    training, reported, choosing = (
        orders(mask, cfg.exposures, seeds, tasks)
        for mask in (parts.training, streamed, parts.validation | (cfg.choosing == "all"))
    )
    unseen = {"heldout": parts.heldout, **apart(task, parts)}
    ranker = Ranker(task, cfg.k)
    documents = catalogues(*[task.theta] * cfg.seeds)
    static = ranker(documents, parts.heldout)[:, METRICS.index("ndcg@{k}")]
    environment = environment_from(
        plain(cfg.environment), items=len(task.theta), rounds=reported.shape[1], seed=cfg.seed
    )
    results: dict[str, np.ndarray] = {}
    curves: dict[str, dict[str, np.ndarray]] = {}
    for grid in (bar := Progress(grids, unit="learner")):
        bar.set_postfix_str(name := grid.name)
        simulation = Simulation(
            *(grid.make, task, environment),
            seeds=seeds,
            example=grid.settings[0],
            chunk=cfg.chunk,
        )
        of_grid, validation = (grid, simulation, ranker), parts.validation
        held = tune(
            run.unit(f"{name}-heldout"), *of_grid, training, validation=validation, ranked=unseen
        )
        setting = choose(run.unit(f"{name}-choice"), *of_grid, choosing, validation=validation)
        first = dict(zip(grid.names, setting[0].tolist(), strict=True))
        learner = grid.make(*setting[0])._replace(name=name)
        save = partial(save_embeddings, run, task, learner, first | {"seed": cfg.seed})

        def finish(states, save=save, scores=simulation.scores):
            save(states)
            return {"final": ranker(states, streamed, scores)}

        online = record(run.unit(f"{name}-online"), simulation, setting, reported, finish)
        against = regret(online["loss"], comparator, online["order"])
        distractor = np.where(reported >= 0, ~np.isin(online["item"], task.labels), np.nan)
        curves[name] = {"success": online["success"], "regret": against, "unneeded": distractor}
        results |= {
            f"{name}/online/accuracy": np.nanmean(online["success"], axis=1),
            f"{name}/online/loss": np.nanmean(online["loss"], axis=1),
            f"{name}/online/unneeded": np.nanmean(distractor, axis=1),
            f"{name}/online/regret": against[:, -1],
            f"{name}/online/microseconds": online["microseconds"],
            **{f"{name}/online/{number}": x for number, x in grid.columns(setting).items()},
        }
        if tasks is not None:
            results[f"{name}/online/complete"] = complete(online, tasks, cfg.exposures)
        each = np.arange(cfg.seeds)
        for i, metric in enumerate(METRICS):
            results[f"{name}/final/{metric.format(k=cfg.k)}"] = online["final"][:, i]
            for part in unseen:
                values = held[part][held["best"], each, i]
                results[f"{name}/{part}/{metric.format(k=cfg.k)}"] = values
        results[f"{name}/heldout/gain"] = results[f"{name}/heldout/ndcg@{cfg.k}"] - static
        for number, values in grid.columns(held["setting"]).items():
            results[f"{name}/heldout/{number}"] = values

    run.save_curves(curves)
    learning_figures(run, curves)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuses learners and environments that cannot be."""
    learner_grids(cfg)
    environment_from(plain(cfg.environment), items=1000, rounds=1000, seed=0)
    require("choosing", cfg.choosing, "all or validation", CHOOSING.__contains__)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints a line a learner, and what its seeds chose."""
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
    """The settings that seeds chose, the most frequent first."""
    settings = zip(*(results[f"{name}/{number}"]["values"] for number in numbers), strict=True)
    words = (", ".join(f"{n} {x:.3g}" for n, x in zip(numbers, s, strict=True)) for s in settings)
    return "\n".join(f"{setting}  x{count}" for setting, count in Counter(words).most_common())


def apart(task: TextTask, parts: Masks) -> dict[str, Mask]:
    """The held-out queries in two: near-duplicates of streamed ones, and new ones.

    Empty where a seed has none of one kind.
    """
    pairs = zip(parts.heldout, parts.training, strict=True)
    near = np.stack([near_duplicates.near(task.texts, *pair) for pair in pairs])
    masks = {"heldout_near": near, "heldout_new": parts.heldout & ~near}
    return masks if all(mask.any(axis=1).all() for mask in masks.values()) else {}


def save_embeddings(
    run: RunDirectory, task: Task, learner: Learner, settings: Mapping[str, float], states: State
) -> None:
    """Writes what the first seed ends with, for `jaxret.load_embeddings`."""
    first = jax.tree.map(lambda leaf: leaf[0], states)
    learnt = from_state(learner, first, task, settings=settings)
    learnt.save(run.directory / "embeddings" / learner.name)


def complete(
    online: Mapping[str, np.ndarray], tasks: Int[np.ndarray, " N"], exposures: int
) -> Float[np.ndarray, " S"]:
    """The share of tasks whose hops all succeeded while they were streamed  (Algorithm 4)."""
    shares = []
    for success, order in zip(online["success"], online["order"], strict=True):
        ran = order >= 0
        visits = zip(*(x[ran].reshape(exposures, -1) for x in (success, order)), strict=True)
        each = [by_task(bits, tasks[queries]).mean() for bits, queries in visits]
        shares.append(np.mean(each))
    return np.array(shares)


if __name__ == "__main__":
    main.cli()
