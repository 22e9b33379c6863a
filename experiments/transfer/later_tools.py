"""Tools that are added when a learner has learnt: does what it learnt hurt them, or they it?

A part of the tools, drawn anew by each seed, is missing throughout the stream, and so are the
queries that need one. Then all are there, the new ones with the rows of their documents.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.common.loading import TextTask
from experiments.transfer.protocols import Results, Setting, Stage
from jaxret.data.masks import Masks
from jaxret.environments import availability
from jaxret.environments.environment import Environment
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.learner import Scores
from jaxret.runtime import sharding
from jaxret.simulation.ranker import Mask, catalogues
from jaxret.simulation.recording import record

KINDS = ("old", "new", "new_for_old", "old_for_new")


class Draw(NamedTuple):
    """Which tools come later, and whose query is whose."""

    environment: Environment  # in which they never come
    new: Bool[np.ndarray, " I"]
    streamed: Mask
    old_needed: Mask  # held-out queries for which old tools alone are right
    new_needed: Mask


def draw(task: TextTask, parts: Masks, share: float, seed: int) -> Draw:
    """Draws a seed's new tools; ValueError where a part of its queries would be empty."""
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


def later(stage: Stage, name: str, grid: LearnerGrid, setting: Setting, share: float) -> Results:
    """Streams without the new tools at a setting, and measures with them: static, learnt, gain.

    ``old`` and ``new`` are nDCG of held-out queries by the kind of tool that they need,
    ``new_for_old`` the share of those in need of an old tool that a new one is ranked first for,
    and ``old_for_new`` the reverse.
    """
    found = []
    for seed, numbers in zip(stage.seeds, setting, strict=True):
        alone = stage.of_seed(seed)
        drawn = draw(stage.task, alone.parts, share, seed)
        simulation = alone.simulation(grid, drawn.environment)
        learnt = record(
            stage.run.unit(f"{name}-later-{seed}"),
            simulation,
            simulation.setting(*numbers),
            alone.stream(drawn.streamed),
            finish=lambda states, drawn=drawn, scores=simulation.scores: measured(
                stage, drawn, states, scores
            ),
        )
        static = measured(stage, drawn, catalogues(stage.task.theta), None)
        found.append({"static": static, "learnt": learnt})
    results = {
        f"{kind}/{who}": np.concatenate([one[who][kind] for one in found])
        for kind in KINDS
        for who in ("static", "learnt")
    }
    gains = {
        f"{kind}/gain": results[f"{kind}/learnt"] - results[f"{kind}/static"] for kind in KINDS
    }
    return results | gains


def measured(
    stage: Stage, drawn: Draw, states: Any, scores: Scores | None
) -> dict[str, np.ndarray]:
    """`KINDS`, of states with an axis of seeds."""
    new_first = [
        drawn.new[np.asarray(_first(states, jnp.asarray(stage.task.queries[mask]), scores))].mean(
            axis=1
        )
        for mask in (drawn.old_needed, drawn.new_needed)
    ]
    return {
        "old": stage.ndcg(states, drawn.old_needed, scores),
        "new": stage.ndcg(states, drawn.new_needed, scores),
        "new_for_old": new_first[0],
        "old_for_new": 1 - new_first[1],
    }


@partial(jax.jit, static_argnames="scores")
def _first(
    states: Any, queries: Float[jax.Array, "N d"], scores: Scores | None
) -> Int[jax.Array, "S N"]:
    """The tool that is ranked first."""

    def one(state):
        return jnp.argmax(
            queries @ state.theta.T if scores is None else scores(state, queries), axis=1
        )

    return sharding.sweep(one, states, mesh=sharding.run_mesh(len(states.theta)))
