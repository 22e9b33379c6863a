"""Which setting of a grid validates best, as a unit of work that can stop and resume.

    setting = choose(unit, grid, simulation, ranker, orders, validation=..)      [S, n]

Letters: N queries, S seeds, T rounds, G settings of n numbers.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int

from jaxret.learners.grid import LearnerGrid
from jaxret.simulation.engine import Simulation
from jaxret.simulation.ranker import METRICS, Mask, Ranker
from jaxret.simulation.recording import Unit


def choose(
    unit: Unit,
    grid: LearnerGrid,
    simulation: Simulation,
    ranker: Ranker,
    orders: Int[np.ndarray, "S T"],
    *,
    validation: Mask,
) -> Float[np.ndarray, "S n"]:
    """The setting of each seed, as `tune` chooses it; one that is alone needs no stream.

    Returns:
      the numbers of each seed, [S, n].
    """
    if len(grid.settings) == 1:
        return np.tile(grid.settings, (len(orders), 1))
    return tune(unit, grid, simulation, ranker, orders, validation=validation)["setting"]


def tune(
    unit: Unit,
    grid: LearnerGrid,
    simulation: Simulation,
    ranker: Ranker,
    orders: Int[np.ndarray, "S T"],
    *,
    validation: Mask,
    ranked: Mapping[str, Mask] | None = None,
) -> dict[str, np.ndarray]:
    """Streams once for every setting, ranks by the final embeddings, and chooses.

    The setting with the largest nDCG + online success on the validation part is chosen: it should
    serve while it learns and rank well afterwards. Seeds that share a validation part choose
    together, by their mean; seeds with parts of their own choose each for itself, since what
    validates one is reported by another.

    Args:
      unit: computes.
      grid: the G settings.
      simulation: of that grid.
      ranker: of the task.
      orders: the streams of all seeds.
      validation: the queries that choose.
      ranked: name -> other queries that are ranked, and choose nothing.

    Returns:
      ``validation`` and the names of ``ranked``: [G, S, 4], the means of `METRICS`;
      ``online [G, S]``, the success of validation queries in the stream (0 if there are none);
      ``success`` and ``loss``: [G, S], means over the whole stream; ``best [S]``, the position of
      the setting that is chosen, and ``setting [S, n]``, its numbers.
    """
    chunks, ran = simulation.cut(orders), orders >= 0
    blank = np.zeros((len(grid.settings), len(orders), len(METRICS)))
    whose = np.broadcast_to(validation, (len(orders), validation.shape[-1]))
    choosing = np.take_along_axis(whose, orders, axis=1) & ran
    parts = {"validation": validation, **(ranked or {})}
    counted = {  # name -> rounds whose mean it is, of which field
        "online": ("success", choosing),
        "success": ("success", ran),
        "loss": ("loss", ran),
    }

    def start():
        learner = simulation.start(simulation.setting(*grid.settings[0]))
        scores = {
            **{part: blank.copy() for part in parts},
            **{name: blank[..., 0].copy() for name in counted},
        }
        return {"learner": learner, **scores}

    def step(state, done):
        g, number = divmod(done, len(chunks))
        setting = simulation.setting(*grid.settings[g])
        states = state["learner"] if number else simulation.start(setting)
        states, trace = simulation.step(states, setting, chunks[number])
        first = sum(chunk.shape[1] for chunk in chunks[:number])
        for name, (field, rounds) in counted.items():
            here = rounds[:, first : first + chunks[number].shape[1]]
            values = np.asarray(getattr(trace, field), np.float64)[:, : here.shape[1]]
            state[name][g] += (values * here).sum(axis=1) / np.maximum(rounds.sum(axis=1), 1)
        if number == len(chunks) - 1:
            for part, mask in parts.items():
                state[part][g] = ranker(states, mask, simulation.scores)
        return state | {"learner": states}

    def finish(state):
        scores = {name: value for name, value in state.items() if name != "learner"}
        value = state["validation"][..., METRICS.index("ndcg@{k}")] + state["online"]
        if validation.ndim == 1:
            value = np.broadcast_to(value.mean(axis=1, keepdims=True), value.shape)
        best = value.argmax(axis=0)
        return {**scores, "best": best, "setting": grid.settings[best]}

    return unit(
        chunks=len(chunks) * len(grid.settings),
        start=start,
        step=step,
        finish=finish,
        rounds=int(ran.sum()) * len(grid.settings),
    )
