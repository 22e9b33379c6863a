"""What ranks: one program for learners that rank by rows, whatever else they remember."""

import numpy as np

import jaxret as jr
from jaxret.simulation.engine import Simulation
from jaxret.simulation.ranker import Ranker


def test_learners_that_rank_by_rows_share_a_program():
    rng = np.random.default_rng(1)
    theta, queries = (rng.normal(size=(n, 4)).astype(np.float32) for n in (6, 9))
    task = jr.Task.from_arrays(theta, queries, rng.integers(0, 6, 9))
    ranker, everyone = Ranker(task, 3), np.ones(9, bool)
    values = []
    for learner in (jr.greedy(), jr.paper_adamw(), jr.mapped()):
        simulation = Simulation(lambda learner=learner: learner, task, seeds=(0, 1))
        states = simulation.start(simulation.setting())
        values.append(ranker(states, everyone, simulation.scores))
    assert ranker._score._cache_size() == 2, "one by rows, one with a map"
    unit = theta / np.linalg.norm(theta, axis=1, keepdims=True)
    best = [(queries @ rows.T).argmax(axis=1) == task.labels[:, 0] for rows in (unit, theta, unit)]
    np.testing.assert_allclose(
        [one[0, 0] for one in values], [one.mean() for one in best], err_msg="accuracy"
    )
