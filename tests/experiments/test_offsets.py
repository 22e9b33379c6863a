"""Words and usage, on the small world."""

import numpy as np
import pytest

import jaxret as jr
from experiments import offsets
from experiments.common.loading import task_of
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import values_of


def configure(world, directory, *more):
    small = [*in_world(world, directory), "seeds=2", "rules=[greedy]"]
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


def test_each_rule_runs_with_each_combination(world, tmp_path, monkeypatch):
    """Two learners are replaced by others of one program: a mixture, and one tested below."""
    cfg, given = configure(world, tmp_path), []
    instead = [jr.hybrid(lexical=x, balance=1.0) for x in (0.1, 0.2)]
    monkeypatch.setattr(jr, "mixture", lambda x: given.append(x) or instead[0])
    monkeypatch.setattr(offsets, "from_documents", lambda *x: given.append(x) or instead[1])
    offsets.main(cfg)
    experts, (learner, of) = given
    assert experts == [jr.grid(jr.hybrid, lexical=[0.0, 0.35])]
    assert learner.facts == jr.hybrid(lexical=0.35, balance=1.0).facts
    assert len(of) == 336
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
        "greedy/plain": jr.greedy(),
        "greedy/lexical": jr.with_lexical(jr.greedy()),
        "greedy/balance": jr.with_balance(jr.greedy()),
        "greedy/both": jr.with_balance(jr.with_lexical(jr.greedy())),
        "static/weighed": instead[0],
        "static/from_documents": instead[1],
    }.items():
        run = jr.simulate(learner, task, seeds=range(cfg.seed, cfg.seed + 2))
        np.testing.assert_allclose(found[name], run.accuracy.values, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(found["greedy/gain"], found["greedy/both"] - found["greedy/plain"])
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
