"""How accurate are learners of the bandit literature, and is it the rule or the start?

    uv run python -m experiments.rivals                                               # DeskBank
    uv run python -m experiments.rivals dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool encoder=mpnet
    uv run python -m experiments.rivals dataset=toollens dataset.path=FOLDER queries=4000 seeds=3

Each seed splits the queries by question: a fifth is the pilot, a fifth of the rest is held out, and
the rest is streamed once. A learner with several settings is first run on the pilot, and each seed
takes the setting with the largest nDCG + success there; no reward of a reported query is used.
Then, for one stream:

    LEARNER/online       success of the item shown, before the round's update
    LEARNER/final        nDCG@k of the streamed queries by the last state
    LEARNER/heldout      nDCG@k of queries that were never streamed
    LEARNER/gain         online accuracy minus that of ``against``; also low and high, the ends of
                         the 95 % interval from resampled questions and seeds, and p, corrected by
                         Holm's procedure over the table (``rivals.md`` marks p >= 0.05 with =)
    LEARNER/kilobytes    size of the learner's state

The learners named in ``rivals`` run once for each of ``starts``: as LEARNER at the documents; as
LEARNER_zero at zero, as in their papers; and as LEARNER_hybrid at documents, words and usage, as
the experts of `jr.mixture` do (`jaxret.learners.bandits.common`). ``families`` names learners of
the list that are one rule from several starts. A table of rules by starts, in the terminal and in
``rivals.md``, has the online accuracy of both. `experiments.benchmarks.rules` measures how long a
round takes.

2 cores: about 8 minutes for DeskBank with MiniLM without the start 'hybrid'; twice that for
UltraTool.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import cache_folder, plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.learners import chosen, learner_grid
from experiments.common.loading import encoder_of, read_dataset, sample_queries
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import cell, markdown, print_table, results_table
from jaxret.evaluation.compare import compare_paired, corrected, success_by_query
from jaxret.learners.bandits.common import Start
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.learner import Learner
from jaxret.runtime.validate import require
from jaxret.task import Task, encoded

COLUMNS = ("online", "final", "heldout", "gain", "low", "high", "p", "kilobytes")


@experiment("rivals")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Stream the same queries to every learner, and compare all of them with one."""
    dataset = sample_queries(read_dataset(cfg), cfg.queries, cfg.seed)
    print(dataset.summary(), flush=True)
    task = encoded(dataset, encoder_of(cfg.encoder), document=cfg.document, cache=cache_folder(cfg))
    seeds, ndcg = range(cfg.seed, cfg.seed + cfg.seeds), f"ndcg@{cfg.k}"
    parts = task.parts(validation=cfg.validation, heldout=cfg.heldout, seeds=seeds)
    pilot = parts.validation
    stream: dict[str, Any] = {"seeds": seeds, "chunk": cfg.chunk}

    def learn(grid):
        """Choose a setting on the pilot, stream and rank."""
        folder = partial(run.resume, grid.name)
        setting = chosen(
            grid, task, part=pilot, on=pilot, metric=ndcg, resume=folder("choice"), **stream
        )
        online = jr.simulate(setting, task, part=parts.training, resume=folder("online"), **stream)
        final, heldout = (
            jr.evaluate(online, task, [ndcg], part=part)[ndcg].values
            for part in (parts.training, parts.heldout)
        )
        return {
            "success": success_by_query(online),
            "online": online.accuracy.values,
            "final": final,
            "heldout": heldout,
            "kilobytes": np.array([size(online.learner, task) / 1e3]),
            **grid.columns(setting.settings),
        }

    results: dict[str, np.ndarray] = {}
    success: dict[str, Float[np.ndarray, "S N"]] = {}
    steps = {grid.name: partial(learn, grid) for grid in entries(cfg)}
    for name, found in run.results(steps, "learner"):
        success[name] = found.pop("success")
        results |= {f"{name}/{key}": values for key, values in found.items()}
    return results | against(success, cfg.against, task)


@main.check
def check(cfg: DictConfig) -> None:
    """Check learners, starts and numbers."""
    known = get_args(Start)
    require("starts", list(cfg.starts), f"some of {', '.join(known)}", set(known).issuperset)
    for rule, family in cfg.families.items():
        require(f"families.{rule}", list(family), f"by {', '.join(known)}", set(known).issuperset)
    names = [grid.name for grid in entries(cfg)]
    require("against", cfg.against, f"one of {', '.join(names)}", names.__contains__)
    require("queries", cfg.queries, ">= 20 or null", lambda n: n is None or n >= 20)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line per learner and rules by starts; write both tables of a results page."""
    names = [grid.name for grid in entries(cfg)]
    title = f"{cfg.dataset.name}, {cfg.document}, {cfg.encoder.name}: gain over {cfg.against}"
    results_table(results, names, COLUMNS, title)
    starts, cells = by_start(results, families(cfg))
    print_table("online accuracy by rule and start", starts, cells)
    path = Path(cfg.directory) / "rivals.md"
    rows = [[f"`{rule}`", *line] for rule, line in cells.items()]
    starts_table = markdown(["rule", *starts], rows)
    path.write_text(f"{table(results, names, cfg.against)}\n{starts_table}\n")
    print(f"the tables in Markdown: {path}")


def table(results: Found, names: Sequence[str], base: str) -> str:
    """Format the table of a results page; differences with p >= 0.05 after Holm are marked."""
    head = ["learner", "online", "final", "held-out", f"online, less `{base}`"]
    rows = []
    for name in names:
        shown = [cell(results[f"{name}/{key}"]) for key in ("online", "final", "heldout")]
        rows.append([f"`{name}`", *shown, "" if name == base else _difference(results, name)])
    return markdown(head, rows) + "\n"


def _difference(results: Found, name: str) -> str:
    gain, low, high, p = (results[f"{name}/{key}"]["mean"] for key in ("gain", "low", "high", "p"))
    mark = "" if p < 0.05 else " ="
    return f"{gain:+.3f} ({low:+.3f} to {high:+.3f}){mark}"


def by_start(
    results: Found, rules: Mapping[str, Mapping[str, str]]
) -> tuple[list[str], dict[str, list[str]]]:
    """Tabulate the online accuracy of rules by their starts.

    Args:
      results: results of the run.
      rules: rule -> start -> learner.

    Returns:
      The starts, and for each rule a cell per start, empty if the rule has no such learner.
    """
    starts = [one for one in get_args(Start) if any(one in family for family in rules.values())]
    cells = {
        rule: [cell(results.get(f"{family.get(start)}/online")) for start in starts]
        for rule, family in rules.items()
    }
    return starts, cells


def families(cfg: DictConfig) -> dict[str, dict[str, str]]:
    """Map each rule to its learners by start: those of ``families`` in the list, then rivals."""
    listed = [name for name in cfg.learners if name not in cfg.rivals]
    given = {
        rule: {start: name for start, name in family.items() if name in listed}
        for rule, family in cfg.families.items()
    }
    rivals = {
        name: {start: started(name, start) for start in cfg.starts}
        for name in cfg.learners
        if name in cfg.rivals
    }
    return {rule: family for rule, family in (given | rivals).items() if family}


def entries(cfg: DictConfig) -> list[LearnerGrid]:
    """List the learners; those of ``rivals`` once for each of ``starts``."""
    found = []
    for name, spec in plain(cfg.learners).items():
        specs = {name: spec}
        if name in cfg.rivals:
            specs = {started(name, start): {**spec, "start": start} for start in cfg.starts}
        found += [learner_grid(one, each) for one, each in specs.items()]
    return found


def started(name: str, start: str) -> str:
    """Return the name of a learner of ``rivals`` with a start; 'document' has no suffix."""
    return name if start == "document" else f"{name}_{start}"


def against(
    success: Mapping[str, Float[np.ndarray, "S N"]], base: str, task: Task
) -> dict[str, np.ndarray]:
    """Compare all learners with one: differences, intervals, and p after Holm over the table.

    Success is NaN for queries that were not streamed.
    """
    found = corrected(
        [
            compare_paired(success[name] - success[base], task.groups, name=name, other=base)
            for name in success
            if name != base
        ]
    )
    results = {}
    for one in found:
        values = {"gain": one.difference, "low": one.low, "high": one.high, "p": one.p}
        results |= {f"{one.name}/{key}": np.array([value]) for key, value in values.items()}
    return results


def size(learner: Learner, task: Task) -> int:
    """Return the bytes of a learner's first state."""
    state = jax.eval_shape(learner.init, jnp.asarray(task.theta))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


if __name__ == "__main__":
    main.cli()
