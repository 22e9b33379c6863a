"""Which findings hold for a second encoder, and do settings tuned on one serve the other?

    uv run python -m jaxret.encoders.fetch mpnet          # once, where no hub is reached
    uv run python -m experiments.compare_encoders         # DeskBank, built in
    uv run python -m experiments.compare_encoders dataset=ultratool dataset.path=FILE

The same queries, splits, orders and seeds in two encoders' vectors; each seed chooses each
learner's setting on its own validation part, as in `experiments.orag`:

    online      success of the tool shown, with the setting chosen in this encoder's vectors
    borrowed    the same with the setting that the same seed has chosen in the other's
    final       nDCG@k of the streamed queries by the last embeddings
    cost        online less borrowed: what it costs not to choose anew

Differences are taken seed by seed.

2 cores: UltraTool with document=full and BFCL 6 min each, encoding included; DeskBank 10 min beside
other work. Expect on DeskBank: centred 0.258 and 0.402 online, frozen 0.214 and 0.347.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from omegaconf import DictConfig

from experiments.common.config import cache_folder, learner_grids, plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import (
    TextTask,
    drawn,
    encode_dataset,
    encoded,
    find_encoder,
    read_dataset,
)
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.data.masks import draw_parts_each
from jaxret.environments.environment import Environment
from jaxret.learners.grid import LearnerGrid
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.simulation.choosing import choose
from jaxret.simulation.engine import Simulation
from jaxret.simulation.ranker import METRICS, Ranker
from jaxret.simulation.recording import record
from jaxret.simulation.streams import orders

COLUMNS = ("online", "final", "borrowed", "cost")
NDCG = METRICS.index("ndcg@{k}")


class Side(NamedTuple):
    """One encoder's vectors of what all sides share."""

    name: str
    task: TextTask
    run: RunDirectory
    cfg: DictConfig
    validation: Bool[np.ndarray, "S N"]

    @property
    def seeds(self) -> range:
        return range(self.cfg.seed, self.cfg.seed + self.cfg.seeds)

    def simulation(self, grid: LearnerGrid) -> Simulation:
        """Of a learner, every run with a seed."""
        return Simulation(
            grid.make,
            self.task,
            Environment(),
            seeds=self.seeds,
            example=grid.settings[0],
            chunk=self.cfg.chunk,
        )

    def choice(self, grid: LearnerGrid) -> Float[np.ndarray, "S n"]:
        """The setting that each seed chooses on its validation part.

        Returns:
          the numbers of each seed [S, n].
        """
        stream = orders(np.ones_like(self.validation), self.cfg.exposures, self.seeds)
        return choose(
            self.run.unit(f"{grid.name}-{self.name}-choice"),
            *(grid, self.simulation(grid), Ranker(self.task, self.cfg.k), stream),
            validation=self.validation,
        )

    def measure(
        self, grid: LearnerGrid, setting: Float[np.ndarray, "S n"], whose: str
    ) -> dict[str, np.ndarray]:
        """Streams what is reported, with a setting chosen on this side or on another's."""
        simulation, ranker = self.simulation(grid), Ranker(self.task, self.cfg.k)

        def finish(states):
            return {"final": ranker(states, ~self.validation, simulation.scores)}

        unit = self.run.unit(f"{grid.name}-{self.name}-by-{whose}")
        stream = orders(~self.validation, self.cfg.exposures, self.seeds)
        return record(unit, simulation, setting, stream, finish)


@experiment("compare_encoders")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Streams to every learner in both encoders' vectors."""
    grids = learner_grids(cfg)
    task = encode_dataset(cfg, drawn(read_dataset(cfg), cfg.queries, cfg.seed))
    second = encoded(task, find_encoder(cfg.other), cache_folder(cfg))
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    validation = draw_parts_each(task.groups, cfg.validation, 0.5, seeds).validation
    sides = [
        Side(name, vectors, run, cfg, validation)
        for name, vectors in zip(names(cfg), (task, second), strict=True)
    ]
    results: dict[str, np.ndarray] = {}
    bar = Progress(grids, unit="learner")
    for grid in bar:
        bar.set_postfix_str(grid.name)
        chosen = [side.choice(grid) for side in sides]
        for side, own, others in zip(sides, chosen, reversed(chosen), strict=True):
            by_own, by_others = (
                side.measure(grid, setting, whose)
                for setting, whose in ((own, "itself"), (others, "the_other"))
            )
            online, borrowed = (np.nanmean(one["success"], axis=1) for one in (by_own, by_others))
            found = {
                "online": online,
                "final": by_own["final"][:, NDCG],
                "borrowed": borrowed,
                "cost": online - borrowed,
                **grid.columns(own),
            }
            results |= {f"{grid.name}/{side.name}/{key}": x for key, x in found.items()}
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuses numbers that cannot be, and an encoder against itself."""
    require("queries", cfg.queries, ">= 20 or null", lambda n: n is None or n >= 20)
    for name in ("exposures", "seeds", "chunk"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)
    require("validation", cfg.validation, "in (0, 1)", lambda x: 0 < x < 1)
    if plain(cfg.encoder) | plain(cfg.other) == plain(cfg.encoder):
        raise ValueError(f"other is the first encoder, {cfg.other.name}: name another one")
    learner_grids(cfg)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints a table for each encoder."""
    for side in names(cfg):
        rows = [f"{learner}/{side}" for learner in cfg.learners]
        title = f"{cfg.dataset.name}, {cfg.document}, exposures={cfg.exposures}: {side}"
        results_table(results, rows, COLUMNS, title)


def names(cfg: DictConfig) -> tuple[str, str]:
    """What the two sides are called: by their encoders, or the second by its layers too."""
    first, second = cfg.encoder.name, cfg.other.name
    return first, second if first != second else f"{second}_{cfg.other.layers}_layers"


if __name__ == "__main__":
    main.cli()
