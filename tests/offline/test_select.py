"""Selection of the better learner from a log, on rounds after those it learned from."""

import jax
import numpy as np
import pytest

import jaxret as jr
from jaxret.logs import take
from tests.offline.conftest import logged, slates_of_two
from tests.problems import make_task

SETTINGS = {"tau": 0.3, "eta": 0.1}
TASK = make_task(queries=120)
SERVED = jr.with_exploration(jr.frozen(), 0.8)
LEARNERS = jr.frozen(), jr.greedy(**SETTINGS)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    noise = jr.label_noise(0.1)
    folder = tmp_path_factory.mktemp("logs")
    return logged(SERVED, TASK, folder, exposures=40, environment=noise)


@pytest.fixture(scope="module")
def chosen(log):
    return jr.select(log, LEARNERS, logging=SERVED)


def value(snapshot):
    """Compute a policy's value when a tenth of the rewards is inverted."""
    scores = TASK.queries @ np.asarray(snapshot.state.theta).T
    return 0.1 + 0.8 * (scores.argmax(axis=1) == TASK.labels[:, 0]).mean()


def test_the_better_one_is_chosen_and_is_surely_better(chosen):
    truth = {name: value(snapshot) for name, snapshot in chosen.snapshots.items()}
    assert truth["greedy"] > truth["frozen"] + 0.2
    assert (chosen.best, chosen.by, chosen.sure) == ("greedy", "DR", True)
    for name, found in chosen.values.items():
        assert found.rounds == 2_400
        assert found["DR"].estimate == pytest.approx(truth[name], abs=0.05)
        assert found["DR"].low < truth[name] < found["DR"].high
    lines = repr(chosen).splitlines()
    assert lines[0] == "learnt on the first half of a log, DR on its other 2,400 rounds:"
    assert [line.split()[0] for line in lines[1:3]] == ["greedy", "frozen"]
    assert lines[3] == "greedy is best"


def test_learners_train_on_the_first_half_and_are_evaluated_on_the_second(log, chosen):
    first, second = take(log, slice(0, 2_400)), take(log, slice(2_400, None))
    warm = jr.warm_start(first, LEARNERS[1])
    jax.tree.map(np.testing.assert_array_equal, chosen.snapshots["greedy"].state, warm.state)
    alone = jr.off_policy(second._replace(version=np.zeros(2_400, int)), warm, logging=SERVED)
    assert chosen.values["greedy"]["DR"].estimate == pytest.approx(alone["DR"].estimate, abs=1e-4)
    both = chosen.values["greedy"]["DR"]  # two learners: half of alpha for each interval
    assert both.low < alone["DR"].low < alone["DR"].high < both.high
    turned = log._replace(reward=np.r_[log.reward[:2_400], 1 - log.reward[2_400:]])
    other = jr.select(turned, LEARNERS, logging=SERVED)
    jax.tree.map(np.testing.assert_array_equal, other.snapshots["greedy"].state, warm.state)
    assert other.best == "frozen"


def test_without_probabilities_the_choice_is_not_sure(log):
    chosen = jr.select(log, LEARNERS)
    assert (chosen.best, chosen.sure) == ("greedy", False)
    assert repr(chosen).endswith("greedy is best, as far as this log can tell")


def test_a_snapshot_continues_from_its_state(log, chosen):
    good = chosen.snapshots["greedy"]
    still = jr.Snapshot(jr.greedy(tau=0.3, eta=0.0)._replace(name="served"), good.state)
    chosen = jr.select(log, [jr.frozen(), still], logging=SERVED)
    assert chosen.best == "served"
    warm = chosen.snapshots["served"].state.theta
    np.testing.assert_allclose(warm, good.state.theta, atol=1e-6)


def test_logs_of_slates_select_by_snips():
    log = slates_of_two(TASK, 0.5, rounds=2_400)
    worse = jr.orag(tau=5.0, eta=0.0)._replace(name="flat")
    chosen = jr.select(log, [worse, jr.orag(tau=0.3, eta=0.0)])
    assert (chosen.best, chosen.by) == ("orag", "SNIPS")


def test_bad_arguments_are_refused_and_few_effective_rounds_give_a_warning(log):
    with pytest.raises(ValueError, match="the learners' names must differ: 'frozen' is at 0"):
        jr.select(log, [jr.frozen(), jr.frozen()])
    with pytest.raises(ValueError, match="learners must be one or more"):
        jr.select(log, [])
    with pytest.raises(ValueError, match="'full_information' is an oracle"):
        jr.select(log, [jr.full_information()])
    with pytest.raises(ValueError, match="the rounds of the log must be >= 4, got 3"):
        jr.select(take(log, slice(0, 3)), LEARNERS)
    still = jax.jit(jr.frozen().init)
    away = jr.Snapshot(jr.frozen()._replace(name="away"), still(-TASK.theta))
    short = take(log, slice(0, 1_000))
    with pytest.warns(UserWarning, match="too few effective rounds to judge frozen, away: let"):
        jr.select(short, [jr.frozen(), away])


def test_rewards_of_another_range_choose_the_same_and_have_values_on_their_scale(log, chosen):
    stars = log._replace(reward=1 + 4 * log.reward)
    found = jr.select(stars, LEARNERS, logging=SERVED, scale=(1, 5))
    assert found.best == chosen.best
    for name, snapshot in found.snapshots.items():
        np.testing.assert_allclose(
            snapshot.state.theta, chosen.snapshots[name].state.theta, atol=1e-6
        )
        value, want = found.values[name]["DR"], chosen.values[name]["DR"]
        np.testing.assert_allclose(value[:3], 1 + 4 * np.array(want[:3]), rtol=1e-5)


@pytest.mark.parametrize(
    ("fields", "learners", "options", "message"),
    [
        ({"reward": 5.0}, LEARNERS, {}, r"reward of round 3 must be in \[0, 1\], got 5 \(1 such"),
        ({"reward": 5.0}, LEARNERS, {"scale": (0, 4)}, r"must be in \[0, 4\], got 5"),
        (
            {"propensity": 50.0},
            LEARNERS,
            {},
            "propensity of round 3 .* give a fraction, not percent",
        ),
        ({"item": 99}, LEARNERS, {}, "round 3 used item 99, which is not on its slate"),
        ({}, LEARNERS, {"alpha": 5}, r"alpha must be in \(0, 1\), got 5"),
        ({}, LEARNERS[0], {}, "learners must be a list of learners, got one: off_policy evaluates"),
    ],
)
def test_logs_and_arguments_out_of_range_are_refused(log, fields, learners, options, message):
    for name, value in fields.items():
        column = getattr(log, name).copy()
        column[3] = value
        log = log._replace(**{name: column})
    with pytest.raises(ValueError, match=message):
        jr.select(log, learners, **options)
