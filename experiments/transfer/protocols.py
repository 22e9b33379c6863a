"""One learner of `experiments.transfer`: online, and on phrasings that it never met."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from experiments.common.loading import TextTask
from experiments.common.run_directory import RunDirectory
from jaxret.data.masks import Masks
from jaxret.environments.environment import Environment
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.learner import Scores
from jaxret.simulation.choosing import choose, tune
from jaxret.simulation.engine import Simulation
from jaxret.simulation.ranker import METRICS, Mask, Ranker, catalogues
from jaxret.simulation.recording import record
from jaxret.simulation.streams import orders

NDCG = METRICS.index("ndcg@{k}")
Results = dict[str, np.ndarray]  # one value a seed
Setting = Float[np.ndarray, "S 2"]  # tau, eta


class Stage(NamedTuple):
    """What all protocols share."""

    run: RunDirectory
    task: TextTask
    parts: Masks  # of each seed
    k: int
    seeds: range
    exposures: int
    chunk: int
    tasks: Int[np.ndarray, " N"] | None  # whose hops are streamed together
    ranker: Ranker

    def simulation(self, grid: LearnerGrid, environment: Environment) -> Simulation:
        seeds, chunk, example = self.seeds, self.chunk, grid.settings[0]
        return Simulation(
            grid.make, self.task, environment, seeds=seeds, example=example, chunk=chunk
        )

    def stream(self, mask: Mask) -> Int[np.ndarray, "S T"]:
        return orders(mask, self.exposures, self.seeds, self.tasks)

    def ndcg(
        self, states: Any, mask: Mask, scores: Scores | None = None
    ) -> Float[np.ndarray, " S"]:
        return self.ranker(states, mask, scores)[:, NDCG]

    def static(self, mask: Mask) -> Float[np.ndarray, " S"]:
        """nDCG by the documents."""
        return self.ndcg(catalogues(*[self.task.theta] * len(self.seeds)), mask)

    def of_seed(self, seed: int) -> "Stage":
        """The same for one seed alone."""
        [at] = [i for i, one in enumerate(self.seeds) if one == seed]
        parts = Masks(*(masks[at : at + 1] for masks in self.parts))
        return self._replace(seeds=range(seed, seed + 1), parts=parts)


def online(
    stage: Stage, name: str, grid: LearnerGrid, simulation: Simulation
) -> tuple[Results, Float[np.ndarray, "S T"]]:
    """Success while it learns, ranking and row norms afterwards; and the success of every round.

    ``norms/used`` is the mean norm of the right tools over the queries of the stream: above
    ``norms/mean``, that over tools, where tools in demand have grown longer than others.
    """
    task, streamed = stage.task, ~stage.parts.validation
    setting = choose(
        stage.run.unit(f"{name}-choice"),
        *(grid, simulation, stage.ranker, stage.stream(np.ones_like(streamed))),
        validation=stage.parts.validation,
    )
    found = record(
        stage.run.unit(f"{name}-online"),
        simulation,
        setting,
        stage.stream(streamed),
        finish=lambda states: {
            "final": stage.ndcg(states, streamed, simulation.scores),
            "norms": np.linalg.norm(states.theta, axis=2),
        },
    )
    right = [task.labels[mask] for mask in streamed]
    uses = [np.bincount(some[some >= 0], minlength=len(task.theta)) for some in right]
    norms = found["norms"].astype(np.float64)
    results = {
        "online/accuracy": np.nanmean(found["success"], axis=1),
        "online/tau": setting[:, 0],
        "online/eta": setting[:, 1],
        f"final/ndcg@{stage.k}": found["final"],
        "norms/mean": norms.mean(axis=1),
        "norms/spread": norms.std(axis=1),
        "norms/used": (norms * uses).sum(axis=1) / np.sum(uses, axis=1),
    }
    return results, found["success"]


def unseen(
    stage: Stage,
    name: str,
    grid: LearnerGrid,
    simulation: Simulation,
    more: Callable[[Any], Mapping[str, np.ndarray]],
) -> tuple[Results, Setting, dict[str, np.ndarray]]:
    """A stream of the training part alone, and how well that and the held-out part are ranked.

    Args:
      stage: what all protocols share.
      name: of the units.
      grid: the settings.
      simulation: of that grid.
      more: the last states -> more to keep.

    Returns:
      results; the setting of each seed, chosen on its validation part; and the unit, with
      what ``more`` gave.
    """
    parts, stream = stage.parts, stage.stream(stage.parts.training)
    setting = tune(
        stage.run.unit(f"{name}-heldout"),
        *(grid, simulation, stage.ranker, stream),
        validation=parts.validation,
    )["setting"]
    found = record(
        stage.run.unit(f"{name}-unseen"),
        simulation,
        setting,
        stream,
        finish=lambda states: {
            "seen": stage.ndcg(states, parts.training, simulation.scores),
            "heldout": stage.ndcg(states, parts.heldout, simulation.scores),
            **more(states),
        },
    )
    gains = {
        "seen": found["seen"] - stage.static(parts.training),
        "heldout": found["heldout"] - stage.static(parts.heldout),
    }
    results = {f"{part}/ndcg@{stage.k}": found[part] for part in gains}
    results |= {f"{part}/gain": gain for part, gain in gains.items()}
    if gains["seen"].mean() > 0:  # of no gain there is no share
        results["heldout/share"] = gains["heldout"] / gains["seen"].mean()
    return results, setting, found
