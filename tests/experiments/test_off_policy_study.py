"""Coverage of intervals on many logs, from nearly uniform to nearly greedy ones."""

import numpy as np
import pytest
from scipy.special import softmax

from experiments.off_policy.study import _held, compared
from jaxret.logs import Log
from jaxret.offline.intervals import ConfidenceSequence
from jaxret.offline.off_policy import OffPolicy, Value, evaluate
from jaxret.offline.snapshots import Target

QUERIES, TOOLS = 60, 10


def best(scores, epsilon=0.0):
    return (1 - epsilon) * np.eye(TOOLS)[scores.argmax(axis=1)] + epsilon / TOOLS


RNG = np.random.default_rng(0)
DOCUMENTS = RNG.normal(size=(QUERIES, TOOLS))
LEARNT = DOCUMENTS + RNG.normal(size=(QUERIES, TOOLS))
REWARDS = 0.1 + 0.8 * softmax(3 * LEARNT, axis=1)
LOGGING = {
    "uniform": np.full((QUERIES, TOOLS), 1 / TOOLS),
    "warm": softmax(DOCUMENTS, axis=1),
    "cool": softmax(3 * DOCUMENTS, axis=1),
    "epsilon 0.2": best(DOCUMENTS, 0.2),
    "epsilon 0.02": best(DOCUMENTS, 0.02),
}
POLICIES = {
    "documents": (best(DOCUMENTS), DOCUMENTS),
    "learnt": (softmax(4 * LEARNT, axis=1), LEARNT),
}


def simulate_coverage(rewards, logging, policy, *, scores=None, rounds, logs, seed=0, alpha=0.05):
    """Evaluate a policy on many logs; the truth at each time is its value on the log's queries.

    Queries are sampled uniformly, tools from the logging policy [N, I], and bits from the rewards
    [N, I].
    """
    rng, value = np.random.default_rng(seed), (policy * rewards).sum(axis=1)
    up_to = np.cumsum(logging, axis=1)
    truth, found = [], []
    for _ in range(logs):
        query = rng.integers(0, len(rewards), rounds)
        lot = rng.random(rounds) * up_to[query, -1]
        item = (up_to[query] <= lot[:, None]).sum(axis=1)
        reward = (rng.random(rounds) < rewards[query, item]).astype(np.float64)
        log = Log(
            query=np.zeros((rounds, 0)),
            slate=item[:, None],
            by_position=logging[query, item][:, None],
            item=item,
            propensity=logging[query, item],
            reward=reward,
            version=np.zeros(rounds, int),
            round=np.arange(rounds),
            probabilities=logging[query],
        )
        aim = Target(
            probabilities=lambda part, query=query: policy[query[part]],
            scores=None if scores is None else lambda part, query=query: scores[query[part]],
        )
        truth.append(np.cumsum(value[query]) / np.arange(1, rounds + 1))
        found.append(evaluate(log, aim, name="policy", alpha=alpha))
    return compared(found, truth)


def study(logging, policy, **given):
    probabilities, scores = POLICIES[policy]
    return simulate_coverage(REWARDS, LOGGING[logging], probabilities, scores=scores, **given)


def test_simulated_logs_have_the_means_in_closed_form():
    """Evaluate on policy with nearly certain bits, so that everything has a closed form."""
    certain = np.zeros((3, 2))
    certain[:, 1] = [1.0, 1.0, 0.0]
    probabilities = np.array([[0.0, 1.0], [0.5, 0.5], [0.2, 0.8]])
    found = simulate_coverage(certain, probabilities, probabilities, rounds=400, logs=30)
    mean = (1.0 + 0.5 + 0.0) / 3
    assert found.truth.mean() == pytest.approx(mean, abs=0.01)
    assert 0 < found.truth.std() < 0.05  # queries differ between logs
    np.testing.assert_allclose(found.effective, 400)
    noise = np.sqrt(0.25 / 3 / 400)  # the choice at the second query is the only randomness
    error = found.estimates["IPS"] - found.truth
    assert error.std() == pytest.approx(noise, rel=0.4)
    assert error.mean() == pytest.approx(0, abs=4 * noise / np.sqrt(30))


def test_a_study_says_what_its_intervals_did():
    found = study("warm", "learnt", rounds=300, logs=20)
    assert {*found.covered} == {"IPS", "SNIPS", "clipped IPS", "DR", "Switch-DR"}
    assert {*found.estimates} == {*found.covered, "DRos"}
    assert found.covered["IPS"].mean() > 0.9
    assert 0 < found.widths["DR"].mean() < found.widths["IPS"].mean() < 1
    assert (found.estimates["clipped IPS"] <= found.estimates["IPS"] + 1e-12).all()
    again, other = (study("warm", "learnt", rounds=300, logs=3, seed=seed) for seed in (0, 1))
    np.testing.assert_array_equal(found.estimates["DR"][:3], again.estimates["DR"])
    assert (found.estimates["DR"][:3] != other.estimates["DR"]).all()


def test_an_interval_covers_at_all_times_or_not_at_all():
    truth, times = np.linspace(0.1, 1.0, 10), np.array([2, 5, 10])  # 0.2, 0.5, 1.0

    def covers(low, high, kind="anytime"):
        sequence = ConfidenceSequence(times, np.array(low), np.array(high))
        value = Value(0.5, low[-1], high[-1], kind, None if kind == "bootstrap" else sequence)
        numbers = {"logged": 0.5, "effective": 10.0, "mean_weight": 1.0}
        found = OffPolicy(name="one", rounds=10, values={"it": value}, **numbers)
        return _held("it", [found], [truth])

    assert covers([0.1, 0.2, 0.9], [0.3, 0.8, 1.0]).tolist() == [True]
    assert covers([0.2, 0.5, 1.0], [0.2, 0.5, 1.0]).tolist() == [True]
    for low, high in (([0.3, 0.2, 0.9], [0.3, 0.8, 1.0]), ([0.1, 0.2, 0.3], [0.3, 0.4, 1.0])):
        assert covers(low, high).tolist() == [False]
        assert covers(low, high, "bootstrap").tolist() == [True]
    assert covers([0.1, 0.2, 0.3], [0.3, 0.8, 0.9], "bootstrap").tolist() == [False]
    assert covers([0.1, 0.2, 0.9], [0.3, 0.8, 1.0], "none") is None


def test_a_study_compares_given_logs_with_given_true_values():
    """Both logs estimate 0.5; the truth is inside all bounds for one, and above for the other."""
    times = np.array([2, 10])
    sequence = ConfidenceSequence(times, np.array([0.1, 0.3]), np.array([0.9, 0.7]))
    values = {
        "IPS": Value(0.5, 0.3, 0.7, "anytime", sequence),
        "SNIPS": Value(0.4, 0.2, 0.6, "bootstrap"),
        "DRos": Value(0.6),
    }
    numbers = {"logged": 0.5, "mean_weight": 1.0, "values": values, "rounds": 10}
    few, many = (OffPolicy(name="one", effective=n, **numbers) for n in (10.0, 1000.0))
    found = compared([few, many], [np.full(10, 0.5), np.full(10, 0.8)])
    assert found.truth.tolist() == [0.5, 0.8]
    held = {name: some.tolist() for name, some in found.covered.items()}
    assert held == {"IPS": [True, False], "SNIPS": [True, False]}
    assert found.estimates["DRos"].tolist() == [0.6, 0.6]
    assert found.widths["IPS"] == pytest.approx([0.4, 0.4])
    assert found.few.tolist() == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("logging", "policy"),
    [*((name, "learnt") for name in LOGGING), ("warm", "documents"), ("epsilon 0.02", "documents")],
)
def test_anytime_intervals_hold_at_all_times_together(logging, policy):
    """95 % intervals cover in at least 0.93 of 100 logs; unbiased estimates show no bias."""
    found = study(logging, policy, rounds=500, logs=100)
    for name in ("IPS", "DR", "clipped IPS"):
        assert found.covered[name].mean() >= 0.93, name
    errors = {name: values - found.truth for name, values in found.estimates.items()}
    noise = {name: np.sqrt((error**2).mean() / 100) for name, error in errors.items()}
    for name in ("IPS", "DR"):
        assert abs(errors[name].mean()) < 4 * noise[name]
    assert errors["clipped IPS"].mean() < 4 * noise["clipped IPS"]
    for name in ("SNIPS", "Switch-DR"):  # low coverage must come with a warning
        if found.covered[name].mean() < 0.9:
            assert found.few.mean() > 0.9, (name, found.covered[name].mean())


@pytest.mark.slow
def test_intervals_for_five_per_cent_would_fail_were_they_for_a_tenth_of_it():
    """Show that the coverage test has power: bounds at alpha = 0.999 fail it."""
    found = study("warm", "documents", rounds=500, logs=100, alpha=0.999)
    assert found.covered["IPS"].mean() < 0.93
