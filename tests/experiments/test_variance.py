"""Bias, variance and their cost in regret, end to end on twelve tools of DeskBank."""

import numpy as np
import pytest

import jaxret as jr
from experiments import variance
from experiments.common.loading import task_of
from tests.experiments.configs import config_of
from tests.experiments.processes import stopped_at

KEPT = ("importance_weighted", "debiased", "full_information")
LEFT_OUT = ("chosen_only", "clipped", "implicit_exploration", "bandit_likelihood", "banditron")


def configure(directory, *more):
    small = ["tracking=files", "seeds=2", "exposures=2", "chunk=128", "sizes=[12]"]
    small += ["tau=[0.02,0.04]", "eta_over_tau=[0.1]", "rates=[0.0,0.2]"]
    small += ["moments={tau:0.1,queries:40}"]
    small += [f"~learners.{name}" for name in LEFT_OUT]
    return config_of("variance", *small, f"directory={directory}", *more)


@pytest.fixture(scope="module")
def traces():
    """Return the trace of each learner and noise rate in the reported stream."""
    return {}


@pytest.fixture(scope="module")
def finished(tmp_path_factory, traces):
    directory, simulate = tmp_path_factory.mktemp("variance"), jr.simulate

    def noted(best, task, **settings):
        run = simulate(best, task, **settings)
        traces[run.name, f"{settings['environment'].noise_rate:g}"] = run.trace
        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jr, "simulate", noted)
        return directory, variance.main(configure(directory))


def test_bias_is_that_of_the_theory_at_the_first_and_the_last_embeddings(finished):
    _, results = finished
    for when in ("", "final/"):
        for name in KEPT:
            assert results[f"{name}/12/0/{when}bias"] < 1e-12
        assert results[f"debiased/12/0.2/{when}bias"] < 1e-9
        paper = results[f"importance_weighted/12/0.2/{when}bias"]
        assert paper == pytest.approx(0.2 * np.sqrt(12))  # Eq. (12): rho on every row


def test_debiasing_noisy_bits_costs_variance(finished):
    _, results = finished
    told, paper, right = (
        results[f"{name}/12/0.2/variance"]
        for name in ("full_information", "importance_weighted", "debiased")
    )
    assert told < 1e-12
    assert 1 < results["importance_weighted/12/0/variance"] < paper < right


def test_the_noise_rate_reaches_environment_and_estimator_as_data(finished, traces):
    """Without noise, the debiased rule equals the paper's exactly; the oracle ignores rewards."""
    _, results = finished
    assert len(traces) == 6
    for (_, rate), trace in traces.items():
        lied = trace.reward != trace.success
        assert abs(lied.mean() - float(rate)) <= 4 * np.sqrt(0.16 / lied.size) * (rate > "0")
    paper, debiased = (
        [traces[name, rate].item for rate in ("0", "0.2")]
        for name in ("importance_weighted", "debiased")
    )
    np.testing.assert_array_equal(paper[0], debiased[0])
    assert (paper[1] != debiased[1]).any()
    for metric in ("online/accuracy", "final/ndcg@10", "online/regret", "gap_closed"):
        values = [results[f"full_information/12/{rate}/{metric}"] for rate in ("0", "0.2")]
        assert values[0] == values[1]


def test_gaps_are_shares_of_the_difference_between_frozen_and_the_oracle(finished):
    _, results = finished
    for metric, gap in variance.GAPS.items():
        metric = metric.format(k=10)
        frozen = results[f"frozen/12/{metric}"]
        oracle = results[f"full_information/12/0/{metric}"]
        assert oracle > frozen + 0.05
        ours = results[f"importance_weighted/12/0/{metric}"]
        closed = results[f"importance_weighted/12/0/{gap}"]
        assert closed == pytest.approx((ours - frozen) / (oracle - frozen))
        assert results[f"full_information/12/0/{gap}"] == pytest.approx(1)


def test_a_part_of_the_catalogue_keeps_the_queries_that_it_answers(finished):
    cfg = configure(finished[0])
    task = task_of(cfg)
    some = variance.set_up(cfg, task, 12)
    kept = [int(np.flatnonzero((task.theta == row).all(axis=1))[0]) for row in some.task.theta]
    assert len(set(kept)) == 12
    assert some.task.ids == tuple(task.ids[item] for item in kept)
    one = (task.labels >= 0).sum(axis=1) == 1
    answered = np.flatnonzero(one & np.isin(task.labels[:, 0], kept))
    np.testing.assert_array_equal(some.task.queries, task.queries[answered])
    theirs = task.labels[answered, 0]
    np.testing.assert_array_equal(np.array(kept)[some.task.labels[:, 0]], theirs)
    assert some.validation.any()
    assert not some.validation[some.sample].any()


def test_files_hold_the_figures(finished):
    directory, _ = finished
    for name in ("accuracy_12", "bias_variance_12"):
        assert (directory / f"{name}.png").stat().st_size > 5_000


def test_a_run_that_is_stopped_resumes_and_ends_with_the_same_numbers(tmp_path, finished):
    with stopped_at(5):
        variance.main(configure(tmp_path))
    assert variance.main(configure(tmp_path)) == finished[1]
