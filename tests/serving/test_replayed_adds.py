"""Tools that come back after the last save: the journal tells whether they keep what was learnt."""

import numpy as np
import pytest

import jaxret as jr
from tests.problems import make_problem
from tests.serving.indices import leaves, same


@pytest.mark.parametrize("reset", [False, True])
def test_a_tool_that_came_back_is_the_same_after_a_crash(tmp_path, reset):
    problem, _ = make_problem(items=6, width=4, queries=5, times=1)
    task = jr.Task.from_arrays(np.asarray(problem.theta), np.eye(4), [0, 1, 2, 3])
    index = jr.Index(jr.greedy(tau=0.3, eta=0.1), task, log=tmp_path / "log.jsonl")
    index.save(tmp_path / "index")
    ticket = index.search(task.queries[0])
    (used,) = ticket.ids
    row = index.names.index(used)
    start = np.array(index.state.theta[row])
    index.feedback(ticket, worked=True)
    learnt = np.array(index.state.theta[row])
    assert abs(learnt - start).max() > 1e-4
    index.remove([used])
    index.add([used, "new"], [task.theta[row], task.theta[1]], reset=reset)
    np.testing.assert_allclose(index.state.theta[row], start if reset else learnt, atol=1e-6)
    index.close()
    again = jr.Index.load(tmp_path / "index")
    same(leaves(again), leaves(index))
    assert again.names == index.names
