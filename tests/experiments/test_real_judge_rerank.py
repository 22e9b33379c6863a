"""A judge as a reranker: its recognition rate by hand, and one small run."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from experiments.common.loading import task_of
from experiments.real_judge import rerank, table
from experiments.real_judge.rerank import recognition
from experiments.real_judge.table import Pairs
from tests.experiments.judged import configure


def test_recognition_is_the_share_of_slates_on_which_the_right_tool_is_used():
    logits = jnp.zeros((3, 4))  # all slates of two tools are equally likely
    verdicts = np.array([[0.9, 0.1, 0.2, 0.3], [0.5, 0.1, 0.7, 0.6], [0.2, 0.4, 0.6, 0.8]])
    found = recognition(
        jr.judging_reranker(verdicts),
        jr.policies.softmax(k=2),
        logits,
        jnp.zeros((3, 1), jnp.int32),
        jax.random.key(0),
        4_000,
    )
    # The right tool's verdict is the highest, above one of the three others, and the lowest.
    np.testing.assert_allclose(found, [1, 1 / 3, 0], atol=0.04)


def test_recognition_of_a_tool_that_is_never_shown_is_not_a_number():
    found = recognition(
        jr.judging_reranker(np.ones((1, 3))),
        jr.policies.greedy(k=2),
        jnp.array([[3.0, 2.0, 1.0]]),
        jnp.array([[2]]),
        jax.random.key(0),
        8,
    )
    assert np.isnan(found).all()


def test_the_matched_reranker_recognises_as_often_and_the_judge_goes_by_its_verdicts():
    yes = np.array([[0.9, 0.1, 0.2, 0.3]])
    worlds = rerank.environments(Pairs(None, yes, yes > 0.5), recognised=0.75, shown=3)
    assert worlds["none"].reranker is None
    np.testing.assert_allclose(worlds["judge"].reranker.verdicts, yes)
    found = recognition(
        worlds["matched"].reranker,
        jr.policies.softmax(k=3),
        jnp.zeros((1, 4)),
        jnp.array([[0]]),
        jax.random.key(1),
        4_000,
    )
    np.testing.assert_allclose(found, 0.75, atol=0.03)


@pytest.fixture(scope="module")
def configured(world, tmp_path_factory):
    """Return settings of a small run whose judge recognises only half of the tools."""
    folder = tmp_path_factory.mktemp("judged")
    own = ["draws=64", "shown=3", "learner=[frozen,reranked]"]
    own += ["~learners.reranked_greedy", "~learners.reranked_paper"]
    own += ["learners.reranked.tau=[0.04]", "learners.reranked.eta_over_tau=[0.03]"]
    make = partial(configure, "real_judge_rerank", world, folder, *own)
    task = task_of(make())
    rows = np.flatnonzero(np.isin(task.labels[:, 0], range(6)))
    right = task.labels[rows, :1] == np.arange(6)
    yes = np.where(right, np.where(np.arange(6) < 3, 0.9, 0.1), 0.5)
    queries = [task.query_ids[row] for row in rows]
    table.empty({}, task.ids[:6], queries)._replace(yes=yes).save(folder / "table.npz")
    return make


@pytest.mark.parametrize("left_out", ["reranked", pytest.param(None, marks=pytest.mark.slow)])
def test_a_judge_serves_the_tools_that_it_recognises_and_no_others(configured, left_out):
    found = rerank.main(configured(*([f"~learners.{left_out}"] if left_out else [])))
    assert found["recognised/least"] == 0.0
    assert found["recognised/most"] == 1.0
    assert found["recognised/never"] + found["recognised/always"] == pytest.approx(1.0)
    frozen = {name: found[f"{name}/frozen/online"] for name in rerank.RERANKERS}
    assert 0 < frozen["judge"] <= found["recognised/always"] + 0.1
    assert frozen["matched"] < 1


def test_an_unknown_reranker_is_refused(configured):
    with pytest.raises(ValueError, match=r"rerankers must be some of none, judge, matched, got"):
        rerank.main(configured("rerankers=[me]"))
