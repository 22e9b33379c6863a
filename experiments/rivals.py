"""How do the bandit field's own rules do, from zero and from the documents?   (a table of rivals)

    uv run python -m experiments.rivals                                               # DeskBank
    uv run python -m experiments.rivals dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool encoder=mpnet
    uv run python -m experiments.rivals dataset=toollens dataset.path=FOLDER queries=4000 seeds=3

Each seed parts the queries by question: a fifth is a pilot, of the rest a fifth is held out, and
what remains is streamed once. Every learner that has settings to choose gets the pilot, as a stream
of its own with labels, and the setting with the largest nDCG + success there; no bit of a query
that is reported is spent on it. Then, of one stream:

    LEARNER/online       success of the tool shown, before the round's update
    LEARNER/final        nDCG@k of the streamed queries by the last state
    LEARNER/heldout      the same of queries never streamed
    LEARNER/gain         online accuracy less that of ``against``; also low, high: the 95 % interval
                         by resampling questions and seeds, and p, after Holm over the table
                         (``rivals.md`` marks with = what 0.05 does not tell from ``against``)
    LEARNER/kilobytes    of a learner's state; microseconds a round of all seeds, as the clock of a
                         busy machine had it (`experiments.benchmarks.rules` measures it in turn)

Rules of the field begin at the documents, and as LEARNER_zero at zero, as their papers have it.

2 cores: some 8 minutes for DeskBank with MiniLM; twice that for UltraTool.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from omegaconf import DictConfig

from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.learners import learner_grid
from experiments.common.loading import TextTask, drawn, encode_dataset, read_dataset
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import cell, results_table
from jaxret.data.masks import Masks, draw_parts_each
from jaxret.evaluation.compare import paired
from jaxret.evaluation.statistics import holm
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.learner import Learner
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.simulation.choosing import choose
from jaxret.simulation.engine import Simulation
from jaxret.simulation.ranker import METRICS, Ranker
from jaxret.simulation.recording import record
from jaxret.simulation.streams import orders

COLUMNS = ("online", "final", "heldout", "gain", "low", "high", "p", "kilobytes", "microseconds")
NDCG = METRICS.index("ndcg@{k}")


class Stage(NamedTuple):
    """What all learners share."""

    cfg: DictConfig
    run: RunDirectory
    task: TextTask
    parts: Masks
    seeds: range

    def played(self, grid: LearnerGrid) -> dict[str, np.ndarray]:
        """Chooses a setting on the pilot, and streams what is reported.

        Returns:
          ``success`` and ``order`` [S, T], ``final`` and ``heldout`` [S], and the setting.
        """
        ranker = Ranker(self.task, self.cfg.k)
        simulation = Simulation(
            *(grid.make, self.task),
            seeds=self.seeds,
            example=grid.settings[0],
            chunk=self.cfg.chunk,
        )
        pilot, reported = (
            orders(mask, 1, self.seeds) for mask in (self.parts.validation, self.parts.training)
        )
        setting = choose(
            self.run.unit(f"{grid.name}-choice"),
            *(grid, simulation, ranker, pilot),
            validation=self.parts.validation,
        )

        def finish(states):
            masks = {"final": self.parts.training, "heldout": self.parts.heldout}
            return {
                name: ranker(states, mask, simulation.scores)[:, NDCG]
                for name, mask in masks.items()
            }

        found = record(self.run.unit(f"{grid.name}-online"), simulation, setting, reported, finish)
        return found | grid.columns(setting)


@experiment("rivals")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Streams to every learner; holds all of them against one."""
    task = encode_dataset(cfg, drawn(read_dataset(cfg), cfg.queries, cfg.seed))
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    parts = draw_parts_each(task.groups, cfg.validation, cfg.heldout, seeds)
    stage, grids = Stage(cfg, run, task, parts, seeds), entries(cfg)
    results: dict[str, np.ndarray] = {}
    success = {}
    bar = Progress(grids, unit="learner")
    for grid in bar:
        bar.set_postfix_str(grid.name)
        found = stage.played(grid)
        success[grid.name] = by_query(found, len(task))
        more = {key: found[key] for key in ("final", "heldout", "microseconds", *grid.names)}
        kilobytes = np.array([size(grid.learner(0), task) / 1e3])
        more |= {"online": np.nanmean(found["success"], axis=1), "kilobytes": kilobytes}
        results |= {f"{grid.name}/{key}": values for key, values in more.items()}
    return results | against(success, cfg.against, task)


@main.check
def check(cfg: DictConfig) -> None:
    """Refuses learners and numbers that cannot be."""
    names = [grid.name for grid in entries(cfg)]
    require("against", cfg.against, f"one of {', '.join(names)}", names.__contains__)
    require("queries", cfg.queries, ">= 20 or null", lambda n: n is None or n >= 20)
    for name in ("seeds", "chunk", "k"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)
    for name in ("validation", "heldout"):
        require(name, cfg[name], "in (0, 1)", lambda x: 0 < x < 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints a line a learner."""
    names = [grid.name for grid in entries(cfg)]
    title = f"{cfg.dataset.name}, {cfg.document}, {cfg.encoder.name}: gain over {cfg.against}"
    results_table(results, names, COLUMNS, title)
    path = Path(cfg.directory) / "rivals.md"
    path.write_text(markdown(results, names, cfg.against))
    print(f"the table in Markdown: {path}")


def markdown(results: Found, names: Sequence[str], base: str) -> str:
    """A table for a page: what is not told from ``base`` by p < 0.05 after Holm is marked."""
    head = ["learner", "online", "final", "held-out", f"online, less `{base}`"]
    lines = [head, ["---"] * len(head)]
    for name in names:
        shown = [cell(results[f"{name}/{key}"]) for key in ("online", "final", "heldout")]
        lines.append([f"`{name}`", *shown, "" if name == base else _difference(results, name)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _difference(results: Found, name: str) -> str:
    gain, low, high, p = (results[f"{name}/{key}"]["mean"] for key in ("gain", "low", "high", "p"))
    mark = "" if p < 0.05 else " ="
    return f"{gain:+.3f} ({low:+.3f} to {high:+.3f}){mark}"


def entries(cfg: DictConfig) -> list[LearnerGrid]:
    """Every learner; those of ``rivals`` twice, from the documents and from zero."""
    found = []
    for name, spec in plain(cfg.learners).items():
        found.append(learner_grid(name, spec))
        if name in cfg.rivals:
            found.append(learner_grid(f"{name}_zero", {**spec, "start": "zero"}))
    return found


def by_query(found: Mapping[str, Any], n: int) -> Float[np.ndarray, "S N"]:
    """Whether each query was served; NaN where it was not streamed."""
    values = np.full((len(found["order"]), n), np.nan)
    for line, order, success in zip(values, found["order"], found["success"], strict=True):
        ran = order >= 0
        line[order[ran]] = success[ran]
    return values


def against(
    success: Mapping[str, Float[np.ndarray, "S N"]], base: str, task: TextTask
) -> dict[str, np.ndarray]:
    """Differences of all others from one, with intervals, and p after Holm over the table."""
    others = [name for name in success if name != base]
    found = {
        name: paired(success[name] - success[base], task.groups, name=name, other=base)
        for name in others
    }
    corrected = holm([one.p for one in found.values()])
    results = {}
    for (name, one), p in zip(found.items(), corrected, strict=True):
        values = {"gain": one.difference, "low": one.low, "high": one.high, "p": p}
        results |= {f"{name}/{key}": np.array([value]) for key, value in values.items()}
    return results


def size(learner: Learner, task: TextTask) -> int:
    """Bytes of the state with which a learner begins."""
    state = jax.eval_shape(learner.init, jnp.asarray(task.theta))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


if __name__ == "__main__":
    main.cli()
