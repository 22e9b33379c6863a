"""Words and usage, on the small world."""

import numpy as np
import pytest

import jaxret as jr
from experiments import offsets
from experiments.common.loading import task_of
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import values_of


def configure(world, directory, *more):
    small = [*in_world(world, directory), "seeds=2", "rules=[orag]"]
    return config_of("offsets", *small, "weights=[0,0.35]", "strengths=[0,1]", *more)


@pytest.mark.slow
def test_a_mixture_runs_with_experts_without_and_with_offsets(world, tmp_path):
    cfg = configure(world, tmp_path, "rules=[mixture]", "seeds=1")
    offsets.main(cfg)
    found = values_of(tmp_path)
    assert not {"mixture/lexical", "mixture/balance"} & {*found}
    task = task_of(cfg)
    for column, reads in {"plain": False, "both": True}.items():
        experts = jr.default_experts(map_every=16, offsets=reads)
        run = jr.simulate(jr.mixture(experts), task, seeds=[cfg.seed])
        np.testing.assert_allclose(found[f"mixture/{column}"], run.accuracy.values)


@pytest.mark.slow
def test_the_oracle_begins_without_its_own_offsets(world, tmp_path):
    cfg = configure(world, tmp_path, "rules=[oracle]", "seeds=1")
    offsets.main(cfg)
    found = values_of(tmp_path)
    task = task_of(cfg)
    for column, settings in {
        "plain": {"lexical": None, "balance": None},
        "lexical": {"lexical": 0.35, "balance": None},
        "both": {"lexical": 0.35, "balance": 1.0},
    }.items():
        run = jr.simulate(jr.oracle(**settings), task, seeds=[cfg.seed])
        np.testing.assert_allclose(found[f"oracle/{column}"], run.accuracy.values)


def test_each_rule_runs_with_each_combination(world, tmp_path):
    cfg = configure(world, tmp_path)
    offsets.main(cfg)
    found = values_of(tmp_path)
    task = task_of(cfg)
    scores = task.prior_scores()
    right = (task.labels == scores.argmax(axis=1)[:, None]).any(axis=1)
    assert found["words"] == pytest.approx(right.mean())
    dense = task.queries @ task.theta.T
    best = (0.65 * dense + 0.35 * scores).argmax(axis=1)
    hybrid = (task.labels == best[:, None]).any(axis=1)
    np.testing.assert_allclose(found["static/0.35/0"], hybrid.mean(), atol=1e-6)
    vectors = (task.labels == dense.argmax(axis=1)[:, None]).any(axis=1)
    np.testing.assert_allclose(found["static/0/0"], vectors.mean(), atol=1e-6)
    for name, learner in {
        "static/0/1": jr.hybrid(lexical=0.0, balance=1.0),
        "orag/plain": jr.orag(),
        "orag/lexical": jr.with_lexical(jr.orag()),
        "orag/balance": jr.with_balance(jr.orag()),
        "orag/both": jr.with_balance(jr.with_lexical(jr.orag())),
        "static/weighed": jr.mixture([jr.grid(jr.hybrid, lexical=[0.0, 0.35])]),
        "static/from_documents": offsets.from_documents(jr.hybrid(lexical=0.35, balance=1.0), task),
    }.items():
        run = jr.simulate(learner, task, seeds=range(cfg.seed, cfg.seed + 2))
        np.testing.assert_allclose(found[name], run.accuracy.values, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(found["orag/gain"], found["orag/both"] - found["orag/plain"])
    [axes] = offsets.figure(cfg, found).axes
    for strength, line in zip((0, 1), axes.lines, strict=False):
        means = [found[f"static/{weight}/{strength}"].mean() for weight in (0, 0.35)]
        np.testing.assert_allclose(line.get_ydata(), means)
    assert {path.suffix for path in tmp_path.glob("static.*")} >= {".png"}


def test_usage_may_begin_with_the_documents_as_queries(world, tmp_path):
    task = task_of(configure(world, tmp_path))
    learner = offsets.from_documents(jr.hybrid(lexical=0.35, balance=1.0), task)
    _, _, usage = learner.init(task.theta).extra
    logits = 0.65 * task.theta @ task.theta.T / 0.02
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    items = len(task.ids)
    counted = items * (p / p.sum(axis=1, keepdims=True)).sum(axis=0)
    np.testing.assert_allclose(usage.mean, (20 + counted) / (20 + items), rtol=2e-5)
    np.testing.assert_allclose(usage.count, 20 + items)


def test_settings_outside_their_range_are_refused(world, tmp_path):
    for override, message in {
        "seeds=0": "seeds must be >= 1, got 0",
        "lexical=1": r"lexical must be in \[0, 1\), got 1",
        "balance=-1": "balance must be >= 0, got -1",
        "weights=[0,1]": r"weights must be numbers in \[0, 1\)",
        "rules=[gready]": "rules must be some of the presets frozen, hybrid, ",
        "rules=[linucb]": "'linucb' is not rank one",
        "rules=[hybrid]": "'hybrid' already has a lexical weight",
    }.items():
        with pytest.raises(ValueError, match=message):
            offsets.main(configure(world, tmp_path, override))
