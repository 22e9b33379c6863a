"""A judge's verdicts as rewards of a learner, and the judge as a reranker.

Error rates and recognition rates are counted by hand; there is one small run of each experiment.
"""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from experiments.common.loading import task_of
from experiments.real_judge import learn, rerank, table
from experiments.real_judge.rerank import recognition
from experiments.real_judge.table import Pairs
from tests.experiments.configs import config_of, in_world


def configure(name, world, folder, *more):
    """Compose settings with the data of the small world and the table in ``folder``."""
    where = [*in_world(world, folder / "run"), f"table={folder / 'table.npz'}", "seeds=2"]
    return config_of(name, *where, *more)


RIGHT = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], bool)
YES = np.array([[0.9, 0.6, 0.1], [0.2, 0.4, 0.3], [0.7, 0.1, 0.8], [0.2, 0.1, 0.6]])


def test_errors_are_counted_by_tool():
    misses, alarms = learn.by_tool(YES, RIGHT)
    np.testing.assert_allclose(misses, [0, 1, 0])
    np.testing.assert_allclose(alarms, [1 / 3, 1 / 3, 0])


def test_errors_are_counted_by_the_rank_of_the_wrong_tool():
    scores = np.array([[9, 1, 2], [1, 9, 2], [3, 4, 0], [4, 3, 9]])
    found = learn.by_rank(YES, RIGHT, scores, 2)  # wrong tools by rank: 2 1, 2 0, 1 0, 0 1
    np.testing.assert_allclose(found, [3 / 4, 0 / 4, 2 / 4])


def test_probabilities_are_held_against_shares():
    found = learn.calibration(YES, RIGHT, bins=2)
    np.testing.assert_array_equal(found.pairs, [7, 5])
    np.testing.assert_allclose(found.right, [1 / 7, 3 / 5])
    np.testing.assert_allclose(found.predicted, [1.4 / 7, 3.6 / 5])


def test_only_a_rule_that_wants_a_rate_is_told_it():
    noisy = {"preset": "debiased", "noise_rate": 0.1, "tau": [0.02]}
    assert learn.with_noise_rate(noisy, 0.3) == noisy | {"noise_rate": 0.3}
    assert learn.with_noise_rate(noisy, 0.6) == noisy | {"noise_rate": 0.49}  # rates stay below 0.5
    for other in ({"preset": "mixture"}, {"estimator": "bandit_likelihood"}):
        assert learn.with_noise_rate(other, 0.3) == other


def test_the_threshold_makes_the_fewest_errors_of_both_kinds():
    best = learn.best_threshold(YES, RIGHT)

    def wrong(level):
        return (YES[RIGHT] <= level).mean() + (YES[~RIGHT] > level).mean()

    assert wrong(best) == min(wrong(level) for level in np.linspace(0, 1, 101))


@pytest.fixture(scope="module")
def judged(world, tmp_path_factory):
    """Return settings of a small run, its task, and a table that accepts tool 0 for all."""
    folder = tmp_path_factory.mktemp("judged")
    own = ["learner=[frozen,debiased]", "learners.debiased.tau=[0.02]"]
    own += ["learners.debiased.eta_over_tau=[0.01]"]
    make = partial(configure, "real_judge_learn", world, folder, *own)
    task = task_of(make())
    tools = task.ids[:6]
    rows = np.flatnonzero(np.isin(task.labels[:, 0], range(6)))[::-1]  # not in the task's order
    yes = np.where(task.labels[rows, :1] == np.arange(6), 0.9, 0.2)
    yes[:, 0] = 0.8
    yes[0, 5] = np.nan  # a missing verdict excludes tool 5
    queries = [task.query_ids[row] for row in rows]
    path = folder / "table.npz"
    table.empty({}, tools, queries)._replace(yes=yes).save(path)
    return make, task, table.load(path)


def test_verdicts_are_joined_with_their_queries_and_tools(judged):
    _, task, begun = judged
    found = table.joined(task, begun)
    assert found.task.ids == task.ids[:5]
    assert found.yes.shape == found.right.shape == (len(found.task), 5)
    np.testing.assert_array_equal(found.right.argmax(axis=1), found.task.labels[:, 0])
    np.testing.assert_allclose(found.yes[:, 1:], np.where(found.right, 0.9, 0.2)[:, 1:], atol=1e-3)
    np.testing.assert_allclose(found.yes[:, 0], 0.8, atol=1e-3)
    apart, rest = table.parted(found, 0.2, seed=0)
    assert len(apart.task) + len(rest.task) == len(found.task)
    assert not set(apart.task.query_ids) & set(rest.task.query_ids)
    hard = table.judge_environment(found, "hard", 0.1)
    np.testing.assert_array_equal(hard.verdicts, found.yes > 0.5)
    low = table.judge_environment(found, "threshold", 0.1)
    assert np.asarray(low.verdicts).all()
    np.testing.assert_allclose(table.judge_environment(found, "soft", 0.1).verdicts, found.yes)
    assert table.judge_environment(found, "labels", 0.1).verdicts is None


def test_tools_after_a_missing_verdict_are_left_out(judged):
    _, task, begun = judged
    whole = np.where(np.isnan(begun.yes), 0.5, begun.yes)
    assert table.joined(task, begun._replace(yes=whole)).task.ids == task.ids[:6]
    labels = [int(task.labels[task.query_ids.index(q), 0]) for q in begun.queries]
    part = whole.copy()
    part[labels.index(4), 2] = np.nan  # queries of tools 0 to 3 are complete
    part[labels.index(0), 4:] = np.nan
    found = table.joined(task, begun._replace(yes=part))
    assert found.task.ids == task.ids[:4]
    assert sorted(set(found.task.labels[:, 0].tolist())) == [0, 1, 2, 3]
    assert len(found.task) == sum(label < 4 for label in labels)


def test_tables_with_unknown_tools_or_too_few_verdicts_are_refused(judged):
    _, task, begun = judged
    with pytest.raises(ValueError, match="tools that data lacks: moon"):
        table.joined(task, begun._replace(tools=("moon", *begun.tools[1:])))
    few = begun.yes.copy()
    second = np.flatnonzero(task.labels[:, 0] == 1)[0]
    few[begun.queries.index(task.query_ids[second])] = np.nan
    with pytest.raises(ValueError, match="all verdicts on 1 of 6 tools: two are needed"):
        table.joined(task, begun._replace(yes=few))


@pytest.mark.parametrize("left_out", ["debiased", pytest.param(None, marks=pytest.mark.slow)])
def test_learners_are_measured_by_the_truth_and_learn_from_the_verdicts(
    judged, left_out, monkeypatch
):
    if left_out:  # a bound takes many programs, so it is given
        given = SimpleNamespace(value=3.0, measured=1.0, holds=True)
        monkeypatch.setattr(jr, "bounds", lambda run: [given])
    make, *_ = judged
    more = [f"~learners.{left_out}"] if left_out else []
    found = learn.main(make("rewards=[labels,hard]", "again=true", *more))
    assert found["theory/regret"] < found["theory/bound"]
    assert found["theory/assumptions_hold"] == bool(left_out)
    assert found["labels/frozen/wrong"] == 0.0
    assert found["hard/frozen/online"] == pytest.approx(found["labels/frozen/online"])
    assert found["hard/frozen/wrong"] > 0
    assert found["judge/false_alarms/most"] == 1.0
    assert found["judge/misses"] == 0.0
    assert found["judge/yes_at_rank/0"] == 1.0
    assert found["theory/wrong_rewards"] > 0


# As a reranker


def recognised(reranker, policy, logits, right, draws=4_000):
    logits, right = jnp.asarray(logits), jnp.asarray(right, jnp.int32)[:, None]
    return recognition(reranker, policy, logits, right, jax.random.key(0), draws)


def test_recognition_is_the_share_of_slates_on_which_the_right_tool_is_used():
    verdicts = np.array([[0.9, 0.1, 0.2, 0.3], [0.5, 0.1, 0.7, 0.6], [0.2, 0.4, 0.6, 0.8]])
    softmax = jr.policies.softmax(k=2)  # all slates of two tools are equally likely
    found = recognised(jr.judging_reranker(verdicts), softmax, np.zeros((3, 4)), [0, 0, 0])
    # The right tool's verdict is the highest, above one of the three others, and the lowest.
    np.testing.assert_allclose(found, [1, 1 / 3, 0], atol=0.04)


def test_recognition_of_a_tool_that_is_never_shown_is_not_a_number():
    reranker, greedy = jr.judging_reranker(np.ones((1, 3))), jr.policies.greedy(k=2)
    found = recognised(reranker, greedy, [[3.0, 2.0, 1.0]], [2], draws=8)
    assert np.isnan(found).all()


def test_the_matched_reranker_recognises_as_often_and_the_judge_goes_by_its_verdicts():
    yes = np.array([[0.9, 0.1, 0.2, 0.3]])
    worlds = rerank.environments(Pairs(None, yes, yes > 0.5), recognised=0.75, shown=3)
    assert worlds["none"].reranker is None
    np.testing.assert_allclose(worlds["judge"].reranker.verdicts, yes)
    softmax = jr.policies.softmax(k=3)
    found = recognised(worlds["matched"].reranker, softmax, np.zeros((1, 4)), [0])
    np.testing.assert_allclose(found, 0.75, atol=0.03)


@pytest.fixture(scope="module")
def half_judged(world, tmp_path_factory):
    """Return settings of a small run whose judge recognises only half of the tools."""
    folder = tmp_path_factory.mktemp("judged")
    own = ["draws=64", "shown=3", "learner=[frozen,reranked]", "rerankers=[judge,matched]"]
    own += ["again=true"]
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
def test_a_judge_serves_the_tools_that_it_recognises_and_no_others(half_judged, left_out):
    found = rerank.main(half_judged(*([f"~learners.{left_out}"] if left_out else [])))
    assert found["recognised/least"] == 0.0
    assert found["recognised/most"] == 1.0
    assert found["recognised/never"] + found["recognised/always"] == pytest.approx(1.0)
    assert 0 < found["judge/frozen/online"] <= found["recognised/always"] + 0.1
    assert found["matched/frozen/online"] < 1
