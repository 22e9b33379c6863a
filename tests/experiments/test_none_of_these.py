"""Scores that say whether a tool is right, on the small world; risk and deciles by hand."""

import numpy as np
import pytest

import jaxret as jr
from experiments import none_of_these as study
from experiments.common.loading import task_of
from jaxret.evaluation.statistics import area_under_roc
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import values_of

#: The default mixture has more experts, and so compiles for longer.
MIXTURE = jr.mixture([jr.grid(jr.hybrid, lexical=[0.25]), jr.grid(jr.greedy, eta=[0.02])])
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def few_experts(monkeypatch):
    monkeypatch.setattr(jr, "mixture", lambda: MIXTURE)


def configure(world, directory, *more):
    return config_of("none_of_these", *in_world(world, directory), "seeds=1", "known=4", *more)


def test_removed_tools_are_gone_and_queries_keep_the_others(world, tmp_path):
    task = task_of(configure(world, tmp_path))
    left = study.thinned(task, 0.4, seed=3)
    tools = len(task.ids)
    assert len(left.ids) == tools - round(0.4 * tools)
    for query in range(len(task)):
        before = {task.ids[i] for i in task.labels[query] if i >= 0}
        after = {left.ids[i] for i in left.labels[query] if i >= 0}
        assert after == before & {*left.ids}
    assert 0 < (~left.answerable).sum() < len(task)
    for place, one in enumerate(left.ids):
        row = task.ids.index(one)
        np.testing.assert_array_equal(left.theta[place], task.theta[row])
        assert left.documents[place] == task.documents[row]
    assert study.thinned(task, 0.4, seed=4).ids != left.ids


def test_every_score_is_taken_before_the_bit_of_its_query(world, tmp_path):
    """The scores up to a round are the same if all later rounds have other labels."""
    cfg = configure(world, tmp_path)
    task = study.thinned(task_of(cfg), 0.2, seed=0)
    [order] = jr.stream_orders(task, 1, [0])
    labels = task.labels.copy()
    labels[order[10:]] = -1
    other = jr.Task.from_arrays(
        task.theta,
        task.queries,
        labels,
        texts=task.texts,
        documents=task.documents,
        none_right=True,
    )
    one, two = (study.scores_of(cfg, each, order, 0) for each in (task, other))
    assert {*study.STATIC, *study.MIXTURE, *study.SHOWN} == {*one}
    for name in one:
        np.testing.assert_allclose(one[name].score[:11], two[name].score[:11], rtol=1e-5)
    np.testing.assert_array_equal(one["mixture/after"].score, two["mixture/after"].score)
    assert not np.allclose(one["mixture/online"].score[11:], two["mixture/online"].score[11:])


def test_the_online_score_is_the_confidence_of_one_whole_run(world, tmp_path):
    cfg = configure(world, tmp_path)
    task = study.thinned(task_of(cfg), 0.2, seed=0)
    [order] = jr.stream_orders(task, 1, [0])
    scored = study.scores_of(cfg, task, order, 0)
    run = jr.simulate(MIXTURE, task)
    np.testing.assert_array_equal(run.order[0], order)
    np.testing.assert_allclose(scored["mixture/online"].score, run.trace.confidence[0], atol=1e-4)
    np.testing.assert_array_equal(scored["mixture/online"].right, run.trace.success[0])
    z = 0.65 * task.queries @ task.theta.T + 0.35 * task.prior_scores()
    best = np.argsort(-z[order], axis=1)[:, :2]
    right = (task.labels[order] == best[:, :1]).any(axis=1)
    np.testing.assert_array_equal(scored["hybrid/margin"].right, right)
    two = np.take_along_axis(z[order], best, axis=1)
    np.testing.assert_allclose(scored["hybrid/margin"].score, two[:, 0] - two[:, 1], atol=1e-6)
    np.testing.assert_allclose(scored["hybrid/largest"].score, two[:, 0], atol=1e-6)
    p = np.exp(z[order] / cfg.tau)
    p /= p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(scored["hybrid/softmax"].score, p.max(axis=1), rtol=1e-4)
    shown = run.trace.item[0]
    np.testing.assert_allclose(
        scored["shown/softmax"].score, p[np.arange(len(p)), shown], rtol=1e-3, atol=1e-6
    )


def test_the_experiment_measures_and_draws(world, tmp_path):
    cfg = configure(world, tmp_path)
    study.main(cfg)
    found = values_of(tmp_path)
    task = study.thinned(task_of(cfg), cfg.share, seed=cfg.seed)
    [order] = jr.stream_orders(task, 1, [cfg.seed])
    scored = study.scores_of(cfg, task, order, cfg.seed)
    for name in (*study.STATIC, *study.MIXTURE):
        late = study.Scored(*(x[4:] for x in scored[name]))
        assert found[f"{name}/late/area"] == pytest.approx(area_under_roc(*late))
        exists = area_under_roc(late.score, task.answerable[order][4:])
        assert found[f"{name}/late/exists"] == pytest.approx(exists)
    best = max(found[f"{one}/late/area"][0] for one in study.STATIC)
    gain = found["mixture/online/late/area"][0] - best
    assert found["mixture/online/late/gain"] == pytest.approx(gain)
    assert found["removed/queries"] == pytest.approx(1 - task.answerable.mean())
    p, _y = (x[4:] for x in scored["mixture/online"])
    assert found["selective/coverage"] == pytest.approx((p >= 0.5).mean())
    assert {path.stem for path in tmp_path.glob("*.png")} >= {"risk", "calibration"}


def test_a_stream_of_which_no_half_is_measured_is_refused(world, tmp_path):
    with pytest.raises(ValueError, match="known must be below"):
        study.main(configure(world, tmp_path, "known=10000"))


def test_risk_is_that_of_the_surest_answers():
    scores, right = RNG.permutation(50) / 50, RNG.random(50) < 0.5
    curve = study.risk_coverage(scores, right)
    for n in range(1, 51):
        surest = np.argsort(-scores)[:n]
        assert curve[n - 1] == pytest.approx(1 - right[surest].mean())


def test_equal_scores_count_as_drawn_in_a_random_order():
    scores, right = np.array([2, 1, 1, 1, 0]), np.array([True, True, False, False, True])
    means = np.zeros(5)
    for _ in range(4000):
        order = np.lexsort([RNG.random(5), -scores])
        means += np.cumsum(~right[order]) / np.arange(1, 6) / 4000
    np.testing.assert_allclose(study.risk_coverage(scores, right), means, atol=0.02)


def test_deciles_compare_predictions_with_answers():
    p = RNG.random(1000)
    right = RNG.random(1000) < p**2
    predicted, happened = study.by_decile(p, right)
    order = np.argsort(p)
    for i in range(10):
        rows = order[100 * i : 100 * (i + 1)]
        assert predicted[i] == pytest.approx(p[rows].mean())
        assert happened[i] == pytest.approx(right[rows].mean())
    assert predicted[5] - happened[5] > 0.15
