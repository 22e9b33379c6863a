"""Tools that are added after learning: do learnt rows and new tools hurt each other?

A share of the tools, drawn by each seed, and the queries that need one, are missing throughout the
stream. Afterwards all tools are available, the new ones with the rows of their documents.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

import jaxret as jr
from experiments.transfer.protocols import Protocol, Results, Setting
from jaxret.environments import availability
from jaxret.environments.environment import Environment
from jaxret.learners.grid import LearnerGrid
from jaxret.task import Parts, Task

KINDS = ("old", "new", "new_for_old", "old_for_new")


class Draw(NamedTuple):
    """The tools that are added later, and the queries that need old or new tools."""

    environment: Environment  # environment without the new tools
    new: Bool[np.ndarray, " I"]
    streamed: Bool[np.ndarray, " N"]
    old_needed: Bool[np.ndarray, " N"]  # held-out queries for which only old tools are right
    new_needed: Bool[np.ndarray, " N"]


def draw(task: Task, parts: Parts, share: float, seed: int) -> Draw:
    """Draw a seed's new tools; raise ValueError if a part of its queries would be empty."""
    later_ones = availability.later(len(task.theta), share, at=availability.FOREVER, seed=seed)
    new = later_ones.arrives > 0
    needs_new = ((task.labels >= 0) & new[task.labels]).any(axis=1)
    [heldout], [training] = parts.heldout, parts.training
    masks = {
        "streamed": training & ~needs_new,
        "old_needed": heldout & ~needs_new,
        "new_needed": heldout & needs_new,
    }
    if empty := [name for name, mask in masks.items() if not mask.any()]:
        raise ValueError(
            f"later.share={share} leaves no query {empty} in the draw of seed {seed}: "
            "choose another share in (0, 1), or a larger heldout"
        )
    return Draw(environment=Environment(**later_ones._asdict()), new=new, **masks)


def later(
    protocol: Protocol, step: str, grid: LearnerGrid, setting: Setting, share: float
) -> Results:
    """Stream without the new tools at a setting, and measure with them: static, learnt, gain.

    ``old`` and ``new`` are nDCG of held-out queries by the kind of tool that they need.
    ``new_for_old`` is the share of queries for old tools that rank a new tool first, and
    ``old_for_new`` the reverse.
    """
    task, found = protocol.task, []
    for seed, numbers in zip(protocol.seeds, setting, strict=True):
        alone = protocol.of_seed(seed)
        drawn = draw(task, alone.parts, share, seed)
        name = f"{step}-later-{seed}"

        def compute(alone=alone, drawn=drawn, numbers=numbers, name=name):
            ran = jr.simulate(
                grid._replace(settings=numbers[None]),
                task,
                part=drawn.streamed,
                environment=drawn.environment,
                resume=protocol.run.resume(name),
                **alone.stream,
            )
            shown = {"item": ran.trace.item, "order": ran.order}
            return measured(alone, drawn, ran) | shown

        learnt = protocol.run.result(name, compute)
        found.append({"static": measured(alone, drawn, task.theta), "learnt": learnt})
    results = {
        f"{kind}/{who}": np.concatenate([one[who][kind] for one in found])
        for kind in KINDS
        for who in ("static", "learnt")
    }
    gains = {
        f"{kind}/gain": results[f"{kind}/learnt"] - results[f"{kind}/static"] for kind in KINDS
    }
    return results | gains


def measured(protocol: Protocol, drawn: Draw, ranked: jr.Run | np.ndarray) -> dict[str, np.ndarray]:
    """Measure `KINDS` of one seed, by a run or by rows."""
    new_first = [
        np.array([drawn.new[_first(ranked, protocol.task.queries[mask])].mean()])
        for mask in (drawn.old_needed, drawn.new_needed)
    ]
    return {
        "old": protocol.ndcg(ranked, drawn.old_needed[None]),
        "new": protocol.ndcg(ranked, drawn.new_needed[None]),
        "new_for_old": new_first[0],
        "old_for_new": 1 - new_first[1],
    }


def _first(ranked: jr.Run | np.ndarray, queries: np.ndarray) -> Int[np.ndarray, " n"]:
    """Return the tool that is ranked first for each query."""
    vectors = jnp.asarray(queries)
    if isinstance(ranked, np.ndarray):
        scores = vectors @ jnp.asarray(ranked).T
    else:
        [seed] = ranked.seeds
        scores = ranked.learner_of(seed).scores(ranked.state(seed), vectors)
    return np.asarray(jnp.argmax(scores, axis=1))
