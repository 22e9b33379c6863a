"""Does retrieval get better from one success bit a query?   (ORAG Sections 3 and 4, C.3, C.5.1)

    uv run python -m experiments.orag                                   # DeskBank, built in
    uv run python -m experiments.orag dataset=ultratool dataset.path=FILE exposures=1
    uv run python -m experiments.orag -m document=terse,full,expanded   # a sweep

Static retrieval, ORAG, its chosen-only variant, a clipped and a greedy rule, Banditron, the
paper's own settings and the full-information oracle, side by side:

    online    success of the item shown, scored before the round's update; regret
    final     ranking by the final embeddings of the queries that were streamed
    heldout   ranking of queries never streamed, after a stream of the training part alone; where
              some are near-duplicates of streamed ones, these (heldout_near) and the others
              (heldout_new) also apart

The queries are parted once, by question, into validation, held-out and training parts; seeds
differ in the order of the stream and in the draws. The setting (tau, eta) of each learner is
chosen on the validation part, which no reported number touches: for `heldout` by its nDCG after
a stream without it; for `online` and `final` by its success and nDCG in a stream of its own that
holds it. What the first seed of each learner ends with goes to ``embeddings/LEARNER``, for
`jaxret.load_embeddings`.

2 cores: DeskBank 90 s, 15 s more where nothing is encoded yet. Expect there (five exposures, 5
seeds): final nDCG@10 0.378 for frozen, 0.484 for orag, 0.601 for greedy, 1.000 for
full_information.
"""

from collections.abc import Mapping
from functools import partial

import jax
import numpy as np
from jaxtyping import Float, Int
from omegaconf import DictConfig

from experiments.common.config import learner_grids, plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.figures import learning_figures
from experiments.common.loading import draw_parts, load_task
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.data import near_duplicates
from jaxret.embeddings import from_state
from jaxret.online.environment import environment_from
from jaxret.online.learner import Learner
from jaxret.online.recording import METRICS, Ranker, record, tune
from jaxret.online.simulation import Simulation
from jaxret.online.streams import by_task, orders
from jaxret.progress import Progress
from jaxret.task import Task
from jaxret.theory.comparators import proximal_losses
from jaxret.theory.regret import regret
from jaxret.types import State

COLUMNS = ("online/accuracy", "online/regret", "final/recall@{k}", "final/ndcg@{k}")
COLUMNS += ("online/complete", "heldout/recall@{k}", "heldout/ndcg@{k}", "online/microseconds")


@experiment("orag")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Runs every learner in every protocol; returns the results, and writes curves and figures."""
    grids, task = learner_grids(cfg), load_task(cfg)
    parts = draw_parts(task.groups, cfg.validation, cfg.heldout, cfg.seed)
    streamed = ~parts.validation
    _, comparator = proximal_losses(
        *(task.theta, task.queries, task.labels),
        tau=cfg.comparator.tau,
        eta=cfg.comparator.tau * cfg.comparator.eta_over_tau,
        counts=np.full(len(task.queries), cfg.exposures),
    )
    near = near_duplicates.near(task.texts, parts.heldout, parts.training)
    apart = {"heldout_near": near, "heldout_new": parts.heldout & ~near} if near.any() else {}
    apart = {name: mask for name, mask in apart.items() if mask.any()}
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    ranker = Ranker(task, cfg.k)
    environment = environment_from(
        plain(cfg.environment),
        items=len(task.theta),
        rounds=int(streamed.sum()) * cfg.exposures,
        seed=cfg.seed,
    )

    tasks = task.groups if cfg.dataset.get("hops") else None

    def stream(mask):
        return orders(mask, cfg.exposures, seeds, tasks)

    results: dict[str, np.ndarray] = {}
    curves: dict[str, dict[str, np.ndarray]] = {}
    bar = Progress(grids, unit="learner")
    for grid in bar:
        bar.set_postfix_str(grid.name)
        simulation = Simulation(
            grid.make, task, environment, seeds=seeds, example=(1.0, 0.0), chunk=cfg.chunk
        )
        name = grid.name
        unseen = tune(
            run.unit(f"{name}-heldout"),
            grid,
            simulation,
            ranker,
            stream(parts.training),
            validation=parts.validation,
            heldout=parts.heldout,
            more=apart,
        )
        held = {part: unseen[part][unseen["best"]] for part in ("heldout", *apart)}
        best = 0
        if len(grid.settings) > 1:
            everything = stream(np.ones_like(streamed))
            choosing = tune(
                run.unit(f"{name}-choice"),
                grid,
                simulation,
                ranker,
                everything,
                validation=parts.validation,
                heldout=parts.heldout,
            )
            best = choosing["best"]
        tau, eta = grid.settings[best]
        settings = {"tau": tau, "eta": eta, "seed": cfg.seed}
        learner = grid.make(tau, eta)._replace(name=name)
        save = partial(save_embeddings, run, task, learner, settings)

        def finish(states, save=save, scores=simulation.scores):
            save(states)
            return {"final": ranker(states, streamed, scores)}

        online = record(
            run.unit(f"{name}-online"),
            simulation,
            simulation.setting(tau, eta),
            stream(streamed),
            finish,
        )
        against = regret(online["loss"], comparator, online["order"])
        unneeded = ~np.isin(online["item"], task.labels)  # distractors
        curves[name] = {"success": online["success"], "regret": against, "unneeded": unneeded}
        results |= {
            f"{name}/online/accuracy": online["success"].mean(axis=1),
            f"{name}/online/loss": online["loss"].mean(axis=1),
            f"{name}/online/unneeded": unneeded.mean(axis=1),
            f"{name}/online/regret": against[:, -1],
            f"{name}/online/microseconds": online["microseconds"],
            f"{name}/online/tau": np.full(cfg.seeds, tau),
            f"{name}/online/eta": np.full(cfg.seeds, eta),
        }
        if tasks is not None:
            results[f"{name}/online/complete"] = complete(online, tasks, cfg.exposures)
        for i, metric in enumerate(METRICS):
            results[f"{name}/final/{metric.format(k=cfg.k)}"] = online["final"][:, i]
            for part, values in held.items():
                results[f"{name}/{part}/{metric.format(k=cfg.k)}"] = values[:, i]

    run.save_curves(curves)
    learning_figures(run, curves)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuses learners and environments that cannot be."""
    learner_grids(cfg)
    environment_from(plain(cfg.environment), items=1000, rounds=1000, seed=0)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints a line a learner."""
    names = list(cfg.learners)
    columns = [column.format(k=cfg.k) for column in COLUMNS]
    columns = [column for column in columns if f"{names[0]}/{column}" in results]
    title = f"{cfg.dataset.name}, {cfg.document}, exposures={cfg.exposures}"
    results_table(results, names, columns, title)


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
    seeds = len(online["order"])
    success, order = (online[x].reshape(seeds, exposures, -1) for x in ("success", "order"))
    each = [
        [by_task(bits, tasks[queries]).mean() for bits, queries in zip(*seed, strict=True)]
        for seed in zip(success, order, strict=True)
    ]
    return np.mean(each, axis=1)


if __name__ == "__main__":
    main.cli()
