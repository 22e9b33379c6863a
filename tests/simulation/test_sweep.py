"""Sweeps: one program computes the runs of all settings, and unseen questions choose the best."""

from functools import partial

import jax
import numpy as np
import pytest

import jaxret as jr

GRID = {"tau": [0.05, 0.2], "eta": [0.001, 0.02]}


@pytest.fixture(scope="module")
def parts(small):
    return small(queries=100).split((0.6, 0.2, 0.2), seed=1)


@pytest.fixture(scope="module")
def grid(parts):
    return jr.sweep(jr.greedy, parts[0], exposures=2, seeds=2, **GRID)


def test_every_setting_is_the_run_by_itself(grid, parts):
    settings = [{"tau": tau, "eta": eta} for tau in GRID["tau"] for eta in GRID["eta"]]
    assert [run.settings for run in grid.runs] == settings
    for run, setting in zip(grid.runs, settings, strict=True):
        alone = jr.simulate(jr.greedy(**setting), parts[0], exposures=2, seeds=2)
        np.testing.assert_array_equal(run.trace.item, alone.trace.item)
        np.testing.assert_allclose(run.states.theta, alone.states.theta, atol=1e-6)
        np.testing.assert_allclose(run.accuracy.values, alone.accuracy.values)


def test_the_best_setting_has_the_largest_mean_ndcg_where_it_was_not_streamed(grid, parts):
    _, choose, _ = parts
    means = [jr.evaluate(run, choose)["ndcg@10"].mean for run in grid.runs]
    best = grid.best(on=choose)
    assert best is grid.runs[int(np.argmax(means))]
    recalls = [jr.evaluate(run, choose, ("recall@1",))["recall@1"].mean for run in grid.runs]
    best = grid.best(on=choose, metric="recall@1")
    assert recalls[grid.runs.index(best)] == max(recalls)


def test_ties_go_to_the_smaller_eta(parts):
    """The steps are too small to change any ranking."""
    for etas in ([1e-9, 1e-10], [1e-10, 1e-9]):
        grid = jr.sweep(jr.greedy, parts[0], eta=etas)
        assert grid.best(on=parts[1]).settings == {"eta": 1e-10}


def test_a_setting_that_diverged_is_not_chosen(parts):
    free = jr.sweep(jr.orag, parts[0], eta=[1e36, 1e-4], projection=jr.projections.none())
    assert not np.isfinite(free.runs[0].states.theta).all()
    assert free.best(on=parts[1]).settings == {"eta": 1e-4}


def test_questions_that_were_streamed_do_not_choose(grid, parts, small):
    train = parts[0]
    with pytest.raises(ValueError, match="belong to questions that were streamed"):
        grid.best(on=train)
    whole = small(queries=100)  # the same questions with another name and indices
    here = [int((whole.queries == part.queries[0]).all(axis=1).argmax()) for part in parts[:2]]
    arrays = whole.theta, whole.queries[here], whole.labels[here]
    with pytest.raises(ValueError, match="1 queries of the task that chooses"):
        grid.best(on=jr.Task.from_arrays(*arrays, ids=whole.ids, name="other"))
    fresh = small(queries=40, seed=5)
    own = jr.Task.from_arrays(train.theta, fresh.queries, fresh.labels, ids=train.ids, name="small")
    assert grid.best(on=own) in grid.runs  # equal numbers of groups, other questions


def test_same_questions_of_a_data_set_that_was_loaded_twice_do_not_choose():
    def lengths(texts, off):
        return np.array([[len(text), text.count(" ") + off] for text in texts], np.float32)

    encoders = partial(lengths, off=1), partial(lengths, off=1.001)  # rounded in another way
    tasks = [jr.load_task("deskbank", encoder=encoder) for encoder in encoders]
    grid = jr.sweep(jr.greedy, tasks[0].select(np.arange(40)), eta=[0.01])
    with pytest.raises(ValueError, match="belong to questions that were streamed"):
        grid.best(on=tasks[1].select([39, 50]))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"tau": [0.1, -1.0]}, ValueError, "tau must be > 0, got -1"),
        ({"tau": []}, ValueError, "tau must be a list of one or more numbers"),
        ({"k": [1, 2]}, ValueError, r"k=\[1, 2\] cannot vary within one program.*for each k"),
        ({"divide_by": ["model"]}, ValueError, "divide_by=.* cannot vary within one program"),
        ({"tau": 0.1}, ValueError, "a sweep needs a list of values"),
        ({"taus": [0.1]}, TypeError, "taus"),
        ({"tau": [0.1], "seeds": 0}, ValueError, "seeds must be"),
    ],
)
def test_settings_that_cannot_be_swept_are_named(parts, settings, error, message):
    with pytest.raises(error, match=message):
        jr.sweep(jr.orag, parts[0], **settings)


def test_what_makes_no_learners_is_named(parts):
    for wrong, named in ((jr.greedy(), "the learner greedy"), ("greedy", "str")):
        with pytest.raises(ValueError, match=f"makes learners, .*, got {named}$"):
            jr.sweep(wrong, parts[0], tau=[0.1])


def test_fewer_rounds_are_the_beginning_of_the_whole_streams(grid, parts):
    cut = jr.sweep(jr.greedy, parts[0], exposures=2, rounds=30, seeds=2, **GRID)
    for run, whole in zip(cut.runs, grid.runs, strict=True):
        np.testing.assert_array_equal(run.order, whole.order[:, :30])
        np.testing.assert_array_equal(run.trace.item, whole.trace.item[:, :30])
    assert cut.best(on=parts[1]) in cut.runs
    with pytest.raises(ValueError, match="rounds must be None or >= 1, got 0"):
        jr.sweep(jr.greedy, parts[0], rounds=0, **GRID)


def test_any_number_of_any_rule_can_be_an_axis(parts):
    def rule(*, rate, epsilon=0.1):
        explorer = jr.with_exploration(jr.greedy(tau=0.1), epsilon)
        return jr.with_query_map(explorer, rate=rate)

    grid = jr.sweep(rule, parts[0], rate=(0.5, 2.0), epsilon=np.array([0.1, 0.3]))
    alone = jr.simulate(rule(rate=2.0, epsilon=0.1), parts[0])
    np.testing.assert_array_equal(grid.runs[2].trace.item, alone.trace.item)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), grid.runs[2].states, alone.states
    )
    assert grid.best(on=parts[1]).settings.keys() == {"rate", "epsilon"}


def test_tables_hold_a_line_for_each_run(grid, parts):
    alone = jr.simulate(jr.greedy(tau=0.2), parts[0], exposures=2, seeds=2)
    metrics = ("ndcg@10", "recall@5")
    lines = jr.table([alone, grid.runs[1]], on=parts[1], metrics=metrics).split("\n")
    assert lines[0].split() == ["learner", "online", "accuracy", *metrics, "rounds", "form"]
    assert lines[1].startswith("greedy ")
    assert "tau" not in lines[1]
    assert str(alone.accuracy) in lines[1]
    assert lines[2].startswith("greedy (tau=0.05, eta=0.02)")
    assert str(jr.evaluate(grid.runs[1], parts[1])["ndcg@10"]) in lines[2]
    assert len(repr(grid).split("\n")) == 5
