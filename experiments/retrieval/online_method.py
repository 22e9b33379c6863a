"""An online learner as a method: the documents' rows, moved by a stream of the training part.

Each training query comes ``online.exposures`` times, or once for the method ``NAME+once`` (ORAG
Tables 1 and 2), in an order of each seed, and one bit comes back: was the tool shown a right one?
The setting is the one whose last rows rank the validation part best, on average over the seeds.
"""

import jax
import numpy as np

from experiments.common.config import plain
from experiments.common.learners import learner_grid
from experiments.retrieval.bench import Bench
from jaxret.retrieval.dense import dense
from jaxret.retrieval.retriever import Retriever
from jaxret.simulation.choosing import choose
from jaxret.simulation.engine import Simulation
from jaxret.simulation.ranker import Ranker
from jaxret.simulation.recording import record
from jaxret.simulation.streams import orders


def retriever(bench: Bench, name: str, seed: int) -> Retriever:
    """A seed's last rows; queries are seen as the learner sees them."""
    cfg, task, parts = bench.cfg, bench.task, bench.masks
    base, _, extra = name.partition("+")
    grid = learner_grid(base, plain(cfg.learners)[base])
    seeds = range(cfg.seed, cfg.seed + cfg.online.seeds)
    simulation = Simulation(
        grid.make,
        task,
        seeds=seeds,
        example=grid.settings[0],
        chunk=cfg.online.chunk,
    )
    stream = orders(parts.training, 1 if extra == "once" else cfg.online.exposures, seeds)
    ranker = Ranker(task, cfg.online.k)
    setting = choose(
        bench.run.unit(f"{name}-tuning"),
        *(grid, simulation, ranker, stream),
        validation=parts.validation,
    )

    def finish(states):
        leaves = {f"state{i}": leaf for i, leaf in enumerate(jax.tree.leaves(states))}
        return leaves | {"heldout": ranker(states, parts.heldout, simulation.scores)}

    found = record(bench.run.unit(f"{name}-stream"), simulation, setting, stream, finish)
    tree = jax.tree.structure(jax.eval_shape(simulation.start, setting))
    of_seed = [found[f"state{i}"][seeds.index(seed)] for i in range(tree.num_leaves)]
    state = jax.device_put(jax.tree.unflatten(tree, of_seed))
    plainly = dense(name, state.theta, task.encoder, cache=bench.cache)
    if simulation.map_queries is None:
        return plainly
    mapped = jax.jit(simulation.map_queries)
    return plainly._replace(read=lambda texts: np.asarray(mapped(state, plainly.read(texts))))
