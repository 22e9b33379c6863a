"""Does retrieval get better from one success bit per query?   (ORAG Sections 3 and 4, C.3, C.5.1)

    uv run python -m experiments.orag                                   # DeskBank, built in
    uv run python -m experiments.orag dataset=ultratool dataset.path=FILE exposures=1
    uv run python -m experiments.orag -m document=terse,full,expanded   # a sweep

Each learner of the config is measured in three protocols:

    online    success of the item shown, before the round's update; regret
    final     ranking of the streamed queries by the final embeddings
    heldout   ranking of queries that were never streamed, after a stream of the training part, and
              its gain in nDCG over the documents'; also apart for near-duplicates of streamed
              queries (heldout_near) and for the others (heldout_new), where there are both

Each seed splits the queries, by question, into validation, held-out and training parts, has its own
order and draws, and chooses tau and eta on its validation part: for `heldout` by nDCG after a
stream without that part; for `online` and `final` by nDCG and success in a stream with it. ± covers
split, choice, order and draws. `configs/orag.yaml` explains the settings. ``embeddings/LEARNER``
holds the last embeddings of the first seed.
"""

from functools import partial
from typing import Any

from omegaconf import DictConfig

import jaxret as jr
from experiments.common.comparator import comparator_losses
from experiments.common.config import learner_grids, plain
from experiments.common.environments import environment_of
from experiments.common.experiment import Found, Results, experiment
from experiments.common.figures import learning_figures
from experiments.common.learners import chosen
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.streaming import measured_online, ranking_metrics, stream_of, unseen_parts
from experiments.common.tables import results_table, settings_table
from jaxret.runtime.validate import require

COLUMNS = ("online/accuracy", "online/regret", "final/recall@{k}", "final/ndcg@{k}")
COLUMNS += ("online/complete", "heldout/recall@{k}", "heldout/ndcg@{k}", "heldout/gain")
CURVES = ("success", "regret", "unneeded")


@experiment("orag")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Stream to every learner in every protocol; write curves and figures."""
    task, seeds = task_of(cfg), range(cfg.seed, cfg.seed + cfg.seeds)
    parts = task.parts(validation=cfg.validation, heldout=cfg.heldout, seeds=seeds)
    unseen, comparator = unseen_parts(task, parts), comparator_losses(cfg, task)
    stream = stream_of(cfg, task, parts, cfg.exposures)
    sweep = stream_of(cfg, task, parts, cfg.sweep_exposures or cfg.exposures)
    ndcg = f"ndcg@{cfg.k}"
    by: dict[str, Any] = {"on": parts.validation, "metric": ndcg}
    static = jr.evaluate(task.theta, task, [ndcg], part=parts.heldout)[ndcg].values

    def learn(grid):
        """Choose settings, stream and rank, for one learner."""
        resume = partial(run.resume, grid.name)
        swept = jr.sweep(grid, task, part=parts.training, resume=resume("heldout"), **sweep)
        held = swept.best(**by)
        if cfg.sweep_exposures:
            held = jr.simulate(held, task, part=parts.training, resume=resume("unseen"), **stream)
        among = parts.validation | (cfg.sweep_on == "all")
        best = chosen(grid, task, part=among, resume=resume("choice"), **by, **sweep)
        online = jr.simulate(best, task, part=parts.streamed, resume=resume("online"), **stream)
        online.save(run.directory / "embeddings" / grid.name)

        found = measured_online(online, comparator)
        if stream["hops"]:
            found["online/complete"] = online.complete(cfg.exposures).values
        ranked = {"final": (online, parts.streamed)} | {n: (held, x) for n, x in unseen.items()}
        for protocol, (learner, part) in ranked.items():
            values = jr.evaluate(learner, task, ranking_metrics(cfg.k), part=part)
            found |= {f"{protocol}/{metric}": x.values for metric, x in values.items()}
        found["heldout/gain"] = found[f"heldout/{ndcg}"] - static
        for protocol, learner in (("online", online), ("heldout", held)):
            numbers = grid.columns(learner.numbers)
            found |= {f"{protocol}/{number}": x for number, x in numbers.items()}
        return found

    results, curves = {}, {}
    steps = {grid.name: partial(learn, grid) for grid in learner_grids(cfg)}
    for name, found in run.results(steps, "learner"):
        curves[name] = {curve: found[curve] for curve in CURVES}
        results |= {f"{name}/{key}": value for key, value in found.items() if "/" in key}
    run.save_curves(curves)
    learning_figures(run, curves)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check learners and environments."""
    learner_grids(cfg)
    environment_of(plain(cfg.environment), items=1000, rounds=1000, seed=0)
    require("sweep_on", cfg.sweep_on, "all or validation", ("all", "validation").__contains__)
    given = cfg.sweep_exposures
    require("sweep_exposures", given, "null or >= 1", lambda n: n is None or n >= 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line per learner, and the settings that its seeds chose."""
    hops = cfg.dataset.get("hops")
    columns = [name.format(k=cfg.k) for name in COLUMNS if hops or not name.endswith("complete")]
    title = f"{cfg.dataset.name}, {cfg.document}, exposures={cfg.exposures}"
    results_table(results, list(cfg.learners), columns, title)
    settings_table(results, learner_grids(cfg), {"online, final": "online", "heldout": "heldout"})


if __name__ == "__main__":
    main.cli()
