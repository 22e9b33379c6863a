"""The log of a simulation contains each round once, whether or not the run was interrupted."""

import json

import jax
import numpy as np
import pytest
from scipy.special import softmax

import jaxret as jr
from tests.interruption import stopped
from tests.problems import fixed_delay, make_task, same

SETTINGS = {"tau": 0.1, "eta": 0.02}
TASK = make_task()
EXPLORING = jr.with_exploration(jr.greedy(**SETTINGS), 0.3)
# Runs of one length and number of seeds share a program; the settings are data.
GIVEN = {"exposures": 2, "seeds": 2, "chunk": 48, "environment": jr.label_noise(0.2)}
SLATES = GIVEN | {"environment": jr.Environment(reranker=jr.simulated_reranker(accuracy=0.5))}


def files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.jsonl"))}


@pytest.mark.parametrize("devices", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_each_seed_writes_its_rounds(tmp_path, devices):
    given = GIVEN | {"seeds": (3, 1), "devices": devices, "log": tmp_path / "logs"}
    run = jr.simulate(EXPLORING, TASK, **given)
    assert run.form == ("blocked" if devices is None else "mesh of 2 devices")
    assert [*files(tmp_path / "logs")] == ["seed_1.jsonl", "seed_3.jsonl"]
    for place, seed in enumerate(run.seeds):
        log = jr.load_log(tmp_path / "logs" / f"seed_{seed}.jsonl", TASK)
        trace = jax.tree.map(lambda x, place=place: x[place], run.trace)
        same((log.item, log.slate[:, 0]), (trace.item, trace.item))
        propensities = log.by_position[:, 0], log.propensity
        same(np.float32(propensities), np.stack([trace.propensity] * 2))
        same(log.reward, trace.reward)
        assert (log.reward != trace.success).any()  # rewards, not successes
        same(log.query, TASK.queries[run.order[place]])
        same((log.version, log.round), (np.arange(120), np.arange(120)))
        same(log.theta, TASK.theta)


def of_positions(logits, slate):
    """Compute the probability of each position, given the tools above."""
    p = np.take_along_axis(softmax(logits, axis=1), slate, axis=1)
    return p / (1 - np.cumsum(p, axis=1) + p)


def test_slates_are_logged_with_the_probability_of_each_position(tmp_path):
    """The learner does not change, so p is known: the softmax of the documents."""
    learner = jr.orag(tau=0.2, eta=0.0, k=3)
    run = jr.simulate(learner, TASK, **SLATES, log=tmp_path)
    plain = jr.simulate(learner, TASK, **SLATES)
    np.testing.assert_array_equal(run.trace.item, plain.trace.item)
    assert (run.form, plain.form) == ("scan", "blocked")
    log = jr.load_log(tmp_path / "seed_1.jsonl", TASK)
    logits = np.float64(log.query) @ np.float64(TASK.theta).T / 0.2
    np.testing.assert_allclose(log.by_position, of_positions(logits, log.slate), rtol=1e-4)
    np.testing.assert_array_equal(log.item, run.trace.item[1])
    assert (log.slate == log.item[:, None]).sum() == 120  # the item used is on the slate once
    assert {*np.argmax(log.slate == log.item[:, None], axis=1)} == {0, 1, 2}
    np.testing.assert_array_equal(np.float32(log.propensity), run.trace.propensity[1])
    with pytest.raises(ValueError, match="slates are logged in the plain scan: leave devices=2"):
        jr.simulate(learner, TASK, log=tmp_path, devices=2)


def test_the_probabilities_of_a_slate_are_those_with_the_prior_scores(tmp_path):
    task = make_task(prior=np.random.default_rng(0).random((60, 12)))
    jr.simulate(jr.with_lexical(jr.orag(tau=0.2, eta=0.0, k=3), 0.5), task, log=tmp_path)
    log = jr.load_log(tmp_path / "seed_0.jsonl", task)
    prior = np.zeros((60, 12))
    np.put_along_axis(prior, log.prior.items, log.prior.scores, axis=1)
    logits = (np.float64(log.query) @ np.float64(task.theta).T + prior) / 0.4
    np.testing.assert_allclose(log.by_position, of_positions(logits, log.slate), rtol=1e-4)


def test_slates_are_shorter_if_fewer_tools_are_available(tmp_path):
    task = make_task(available=np.arange(12) < 2)
    jr.simulate(jr.orag(tau=0.2, k=3), task, **SLATES, log=tmp_path)
    log = jr.load_log(tmp_path / "seed_0.jsonl", task)
    np.testing.assert_array_equal(np.sort(log.slate, axis=1), [[0, 1]] * 120)
    np.testing.assert_allclose(log.by_position[:, 1], 1, rtol=1e-6)
    np.testing.assert_array_equal(log.available, task.available)


@pytest.mark.parametrize(
    ("learner", "given"),
    [(EXPLORING, GIVEN), (jr.orag(**SETTINGS, k=3), SLATES)],
    ids=["one", "slates"],
)
def test_a_log_that_was_interrupted_is_that_of_a_straight_run(tmp_path, learner, given):
    def simulate(where, resume=None):
        place = None if resume is None else tmp_path / resume
        return jr.simulate(learner, TASK, **given, log=tmp_path / where, resume=place)

    simulate("straight")
    stopped(lambda: simulate("cut", "states"))
    assert len(files(tmp_path / "cut")["seed_1.jsonl"].splitlines()) == 1 + 96
    ahead = (tmp_path / "cut" / "seed_1.jsonl").read_bytes()
    simulate("cut", "states")
    assert files(tmp_path / "cut") == files(tmp_path / "straight")
    simulate("cut")  # all rounds are logged, and none is written twice
    assert files(tmp_path / "cut") == files(tmp_path / "straight")
    # A log may be ahead of the state if the last checkpoint was lost, but not behind the state.
    (tmp_path / "straight" / "seed_1.jsonl").write_bytes(ahead[:-5])
    with pytest.warns(UserWarning, match="torn"):
        simulate("straight")
    assert files(tmp_path / "cut") == files(tmp_path / "straight")
    (tmp_path / "cut" / "seed_0.jsonl").unlink()
    with pytest.raises(ValueError, match=r"seed_0.jsonl ends after 0 rounds.* is at 120: delete"):
        simulate("cut", "states")


def test_the_log_of_another_run_is_refused(tmp_path):
    given = {"learner": EXPLORING, "task": TASK, "log": tmp_path} | GIVEN
    jr.simulate(**given)
    before = files(tmp_path)
    assert json.loads(before["seed_0.jsonl"].splitlines()[0])["learner"] == "greedy+exploration"
    changes = (
        {"learner": jr.with_exploration(jr.greedy(**SETTINGS), 0.2)},
        {"exposures": 1},
        {"environment": jr.label_noise(0.1)},
    )
    for change in changes:
        with pytest.raises(ValueError, match=r"seed_0.jsonl is the log of something else"):
            jr.simulate(**given | change)
    assert files(tmp_path) == before


def test_effects_of_the_environment_are_logged(tmp_path):
    """Cover queries as asked, rounds without an answer, and delayed updates."""
    turning = jr.environments.drift.turning(TASK.queries, angle=1.0, rounds=60)
    silent = jr.environments.feedback.censored_by_success(after_success=0.5, after_failure=0.2)
    environment = jr.Environment(delay=fixed_delay(5), rotation=turning, censoring=silent)
    learner = jr.orag(**SETTINGS, k=2)
    run = jr.simulate(learner, TASK, environment=environment, log=tmp_path)
    log = jr.load_log(tmp_path / "seed_0.jsonl", TASK)
    t, query = np.arange(60)[:, None], run.order[0]
    angle = t * float(turning.rate)
    expected = np.cos(angle) * TASK.queries[query] + np.sin(angle) * turning.turned[query]
    np.testing.assert_allclose(log.query, expected, atol=1e-6)
    np.testing.assert_array_equal(log.version, -1)
    np.testing.assert_array_equal(log.item, run.trace.item[0])
    np.testing.assert_array_equal(log.reward, run.trace.reward[0])
    assert 5 < np.isnan(log.reward).sum() < 55
    # No update occurs in the first five rounds, so probabilities follow from the documents.
    logits = np.float64(log.query[:5]) @ np.float64(TASK.theta).T / SETTINGS["tau"]
    expected = of_positions(logits, log.slate[:5])
    np.testing.assert_allclose(log.by_position[:5], expected, rtol=1e-3)
