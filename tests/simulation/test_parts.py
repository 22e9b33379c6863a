"""Parts of a task: each seed streams, validates and reports its own queries."""

import numpy as np
import pytest

import jaxret as jr

GRID = {"tau": [0.05], "eta": [0.0, 0.02]}


@pytest.fixture(scope="module")
def masks():
    """Select the first 9 and the last 6 of 12 queries."""
    found = np.zeros((2, 12), bool)
    found[0, :9], found[1, 6:] = True, True
    return found


@pytest.fixture(scope="module")
def twelve(small):
    return small(items=6, width=4, queries=12, seed=3)


def test_parts_are_by_question_and_cover_the_task(small):
    task = small(queries=200)
    parts = task.parts(validation=0.2, heldout=0.25, seeds=[3, 8])
    total = parts.training.astype(int) + parts.validation + parts.heldout
    np.testing.assert_array_equal(total, 1)
    for mask in parts:
        for other in parts:
            for own, theirs in zip(mask, other, strict=True):
                shared = np.intersect1d(task.groups[own], task.groups[theirs])
                assert mask is other or not len(shared)
    assert parts.validation.mean() == pytest.approx(0.2, abs=0.02)
    assert parts.heldout.mean() == pytest.approx(0.2, abs=0.02)
    assert (parts.validation[0] != parts.validation[1]).any()
    again = task.parts(validation=0.2, heldout=0.25, seeds=[8])
    np.testing.assert_array_equal(again.heldout[0], parts.heldout[1])
    np.testing.assert_array_equal(parts.streamed, parts.training | parts.heldout)


def test_a_seed_with_a_shorter_stream_runs_as_if_it_were_alone(twelve, masks):
    learner = jr.greedy(tau=0.05, eta=0.02)
    both = jr.simulate(learner, twelve, part=masks, exposures=2, seeds=[5, 8])
    assert both.order.shape == (2, 18)
    np.testing.assert_array_equal(both.order[1, 12:], -1)
    assert np.isnan(both.trace.success[1, 12:]).all()
    np.testing.assert_array_equal(both.trace.item[1, 12:], -1)
    alone = jr.simulate(learner, twelve, part=masks[1], exposures=2, seeds=[8, 5])
    np.testing.assert_array_equal(alone.order[0], both.order[1, :12])
    np.testing.assert_array_equal(alone.trace.success[0], both.trace.success[1, :12])
    np.testing.assert_array_equal(alone.states.theta[0], both.states.theta[1])
    assert both.accuracy.values[1] == alone.accuracy.values[0]


def test_each_seed_is_evaluated_on_its_own_queries(twelve, masks):
    run = jr.simulate(jr.greedy(), twelve, exposures=3, seeds=2)
    found = jr.evaluate_each(run, twelve, ["ndcg@2"], part=masks)["ndcg@2"]
    np.testing.assert_array_equal(np.isnan(found), ~masks)
    everywhere = jr.evaluate_each(run, twelve, ["ndcg@2"])["ndcg@2"]
    np.testing.assert_array_equal(found[masks], everywhere[masks])
    means = jr.evaluate(run, twelve, ["ndcg@2"], part=masks)["ndcg@2"].values
    expected = [row[mask].mean() for row, mask in zip(everywhere, masks, strict=True)]
    np.testing.assert_allclose(means, expected)
    rows = jr.evaluate_each(twelve.theta, twelve, ["accuracy"], part=masks)["accuracy"]
    np.testing.assert_array_equal(np.isnan(rows), ~masks)


@pytest.fixture(scope="module")
def swept(twelve, masks):
    return jr.sweep(jr.greedy, twelve, part=masks, seeds=2, **GRID)


def test_the_value_of_a_setting_is_its_ranking_and_its_success_on_the_queries_that_choose(
    swept, twelve, masks
):
    values = swept.values(on=masks, metric="ndcg@2")
    for run, own in zip(swept.runs, values, strict=True):
        ranked = jr.evaluate(run, twelve, ["ndcg@2"], part=masks)["ndcg@2"].values
        # All streamed queries are validation queries.
        np.testing.assert_allclose(own, ranked + run.accuracy.values)
    apart = jr.sweep(jr.greedy, twelve, part=~masks, seeds=2, **GRID)
    ranked = jr.evaluate(apart.runs[0], twelve, ["ndcg@2"], part=masks)["ndcg@2"].values
    np.testing.assert_allclose(apart.values(on=masks, metric="ndcg@2")[0], ranked)


def test_seeds_with_parts_of_their_own_choose_each_for_itself(swept, twelve, masks, monkeypatch):
    def values(self, *, on, metric):
        return np.array([[0.9, 0.1], [0.2, 0.4]])

    monkeypatch.setattr(type(swept), "values", values)
    best = swept.best(on=masks)
    np.testing.assert_array_equal(best.settings["eta"], [0.0, 0.02])
    for seed in range(2):
        np.testing.assert_array_equal(best.states.theta[seed], swept.runs[seed].states.theta[seed])
        np.testing.assert_array_equal(best.trace.item[seed], swept.runs[seed].trace.item[seed])
    assert swept.best(on=masks[0]) is swept.runs[0]  # a shared part decides by the mean of seeds
    again = jr.simulate(best, twelve, part=masks, seeds=2)
    np.testing.assert_array_equal(again.states.theta, best.states.theta)
    assert again.learner_of(1).structure.eta == pytest.approx(0.02)
    with pytest.raises(ValueError, match="seeds must be 2, as many as there are settings, got 3"):
        jr.simulate(best, twelve, seeds=3)
    values = jr.evaluate(best, twelve, ["ndcg@2"])["ndcg@2"].values
    own = [jr.evaluate(run, twelve, ["ndcg@2"])["ndcg@2"].values for run in swept.runs]
    np.testing.assert_array_equal(values, [own[0][0], own[1][1]])


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (np.ones(11, bool), r"the shape of part must be \(12,\) or \(2, 12\), got \(11,\)"),
        (np.zeros(12, bool), "True for a query or more of each seed"),
    ],
)
def test_parts_that_do_not_fit_are_refused(twelve, part, message):
    with pytest.raises(ValueError, match=message):
        jr.simulate(jr.greedy(), twelve, part=part, seeds=2)
