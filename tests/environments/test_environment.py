"""Responses to a slate, availability, combined effects and user-defined effects."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

import jaxret as jr
from jaxret.environments import availability
from jaxret.environments.environment import (
    Environment,
    always_available,
    available_at,
    judged,
    judging_reranker,
    label_noise,
    partition_specs,
    respond,
    simulated_reranker,
)
from jaxret.runtime import sharding
from jaxret.simulation.blocked.simulate import simulate_blocked, simulate_on_mesh
from jaxret.simulation.scan import scan_rounds
from jaxret.types import Catalogue, Slate, Stream
from tests.environments.conftest import make_task

ROUNDS = 20_000
SLATE = Slate(items=jnp.array([7, 2, 9, 4]), propensity=jnp.array([0.4, 0.3, 0.2, 0.1]))


def many_responses(environment, labels, query=0):
    keys = jax.random.split(jax.random.key(3), ROUNDS)
    given = SLATE, jnp.asarray(labels), jnp.asarray(query)
    ask = jax.jit(jax.vmap(lambda key: respond(environment, key, *given)))
    return jax.device_get(ask(keys))


def response(environment, labels, query=0):
    given = jax.random.key(0), SLATE, jnp.asarray(labels), jnp.asarray(query)
    return respond(environment, *given)


def is_rate(bits, rate):
    error = max(np.sqrt(rate * (1 - rate) / len(bits)), 1e-12)
    return abs(bits.mean() - rate) <= 4 * error


@pytest.mark.parametrize("labels", [[7, -1], [3, -1]])
def test_rewards_are_turned_at_the_noise_rate_and_the_truth_is_kept(labels):
    _, feedback, success = many_responses(label_noise(0.2), labels)
    assert (success == (7 in labels)).all()
    assert is_rate(feedback.reward != success, 0.2)


def test_noise_may_differ_by_tool_and_is_that_of_the_tool_that_was_used():
    rates = np.zeros(10)
    rates[[7, 9]] = 0.5, 0.1
    with_rates = label_noise(rates)._replace(reranker=lambda key, slate, labels, query: 2)
    choice, feedback, success = many_responses(with_rates, [9, -1])
    assert (choice.item == 9).all()
    assert is_rate(feedback.reward != success, 0.1)


@pytest.mark.parametrize(("labels", "success"), [([7, -1], 1), ([3, 7], 1), ([2, -1], 0)])
def test_a_plain_environment_uses_the_first_item_and_rewards_success(labels, success):
    choice, feedback, truth = response(Environment(), labels)
    assert (choice.item, truth, feedback.reward) == (7, success, success)
    assert choice.propensity == SLATE.propensity[0]


def test_a_judge_gives_the_reward_and_success_is_by_the_labels():
    verdicts = np.full((3, 10), 0.5)
    verdicts[1, [7, 9]] = 0.25, 0.75  # one query, and two of the items shown
    choice, feedback, success = response(judged(verdicts), [7, -1], query=1)
    assert (choice.item, feedback.reward, success) == (7, 0.25, 1)
    assert feedback.reward.dtype == SLATE.propensity.dtype
    third = judged(verdicts)._replace(reranker=lambda *given: 2)  # the item used decides
    choice, feedback, _ = response(third, [7], query=1)
    assert (choice.item, feedback.reward) == (9, 0.75)
    noisy = judged(verdicts)._replace(noise_rate=0.2)
    rewards = many_responses(noisy, [7, -1], query=1)[1].reward
    assert set(rewards.tolist()) == {0.25, 0.75}
    assert is_rate(rewards == 0.75, 0.2)


@pytest.mark.parametrize("accuracy", [0.0, 0.6, 1.0])
def test_a_reranker_finds_the_right_item_at_its_accuracy_or_by_luck(accuracy):
    environment = Environment(reranker=simulated_reranker(accuracy=accuracy))
    choice, _, success = many_responses(environment, [9, -1])
    assert is_rate(success, accuracy + (1 - accuracy) / 4)
    chance = {7: 0.4, 2: 0.3, 9: 0.2, 4: 0.1}  # the propensity is that of the item used
    np.testing.assert_allclose(choice.propensity, [chance[i] for i in choice.item], rtol=1e-6)
    wrong = choice.item[choice.item != 9]
    for item in (7, 2, 4):  # errors are uniform over the slate
        assert len(wrong) == 0 or is_rate(wrong == item, 1 / 3)


def test_a_judging_reranker_uses_the_item_of_the_slate_with_the_largest_verdict():
    verdicts = np.full((2, 10), 0.5)
    verdicts[1, [0, 4]] = 1.0, 0.9  # item 0 is not shown
    environment = Environment(reranker=judging_reranker(verdicts))
    choice, feedback, success = response(environment, [7, -1], query=1)
    assert (choice.item, success, feedback.reward) == (4, 0, 0)
    np.testing.assert_allclose(choice.propensity, 0.1)


def test_a_reranker_that_sees_no_right_item_picks_any():
    environment = Environment(reranker=simulated_reranker(accuracy=1.0))
    choice, _, success = many_responses(environment, [3, -1])
    assert not success.any()
    assert all(is_rate(choice.item == item, 0.25) for item in (7, 2, 9, 4))


def test_a_reranker_may_read_the_query_instead_of_the_labels():
    environment = Environment(reranker=lambda key, slate, labels, query: query)
    assert response(environment, [-1], query=2)[0].item == 9


@pytest.mark.parametrize(
    ("arrives", "leaves", "rounds"),
    [
        (0, 9, [1, 1, 1, 1, 1]),
        (2, 9, [0, 0, 1, 1, 1]),
        (0, 2, [1, 1, 0, 0, 0]),
        (3, 1, [1, 0, 0, 1, 1]),  # leaves before it arrives, and is away in between
        (2, 2, [0, 0, 0, 0, 0]),  # never available, as for any empty interval
    ],
)
def test_an_item_is_available_from_its_arrival_until_it_leaves(arrives, leaves, rounds):
    """The second of two items is not in the catalogue."""
    environment = Environment(arrives=jnp.full(2, arrives), leaves=jnp.full(2, leaves))
    listed = jnp.array([True, False])
    found = [available_at(environment, jnp.asarray(t), listed).tolist() for t in range(5)]
    assert found == [[bool(here), False] for here in rounds]


def test_items_are_always_available_that_are_available_in_each_round():
    grid = np.stack(np.meshgrid(range(-1, 6), range(-1, 6)), axis=-1).reshape(-1, 2)
    arrives, leaves = jnp.asarray(grid.T)
    listed = jnp.arange(len(grid)) % 5 != 0
    for environment in (
        Environment(),
        Environment(arrives=arrives),
        Environment(leaves=leaves),
        Environment(arrives=arrives, leaves=leaves),
    ):
        each = np.stack([available_at(environment, jnp.asarray(t), listed) for t in range(4)])
        got = always_available(environment, 4, listed)
        np.testing.assert_array_equal(got, each.all(axis=0))
        assert got.any()


@pytest.mark.parametrize("form", ["blocked", pytest.param("8 devices", marks=pytest.mark.slow)])
def test_effects_that_do_not_intervene_have_an_exact_blocked_form(sixteen, blocked_effects, form):
    learner = jr.orag(tau=0.3, eta=0.02, k=3)
    with jax.enable_x64(True):
        catalogue = Catalogue(jnp.asarray(sixteen.theta, float), jnp.arange(16) % 7 != 6)
        order = jnp.asarray(np.tile(np.arange(20), 3))
        stream = Stream(jnp.asarray(sixteen.queries, float), jnp.asarray(sixteen.labels), order)
        start, key = jax.jit(learner.init)(*catalogue), jax.random.key(3)
        blocks = {"block": 16, "tile": 8}
        expected = jax.jit(lambda: scan_rounds(learner, start, blocked_effects, stream, key))()
        how = simulate_blocked
        if form == "8 devices":
            how = partial(simulate_on_mesh, mesh=sharding.make_mesh(item=8))
        state, trace = jax.jit(
            lambda: how(learner, start, blocked_effects, stream, key, **blocks)
        )()
    np.testing.assert_array_equal(trace.item, expected[1].item)
    np.testing.assert_allclose(trace.reward, expected[1].reward)
    np.testing.assert_allclose(state.theta, expected[0].theta, atol=1e-12)
    assert 5 < np.isnan(np.asarray(trace.reward)).sum() < 50


class Outage(NamedTuple):
    """A user-defined effect with all methods of a blocked form; the library does not contain it."""

    SHARDED = ("every",)

    every: Int[Array, " I"]  # item i is absent in rounds t where t + 1 is a multiple of every[i]
    worth: Float[Array, " N"]  # reward of a success, per query
    sign: Float[Array, "N d"]  # sign of each query coordinate in odd rounds
    next_label: Int[Array, " I"]  # in odd rounds the next item is right, too

    def available_at(self, t, available):
        return (t + 1) % self.every != 0

    def queries_at(self, t, query, vector):
        return jnp.where(t % 2 == 1, self.sign[query] * vector, vector)

    def labels_at(self, t, query, labels):
        return jnp.where((t % 2 == 1) & (labels >= 0), self.next_label[labels], labels)

    def reward_of(self, key, item, query, reward):
        return reward * self.worth[query]

    def is_observed(self, key, success):
        return jax.random.uniform(key) < 0.7


@jax.jit
@jax.vmap
def drawn(number):
    """Draw the lot of the effect from the number of the key of a round."""
    key = jax.random.fold_in(jax.random.key(0), number)
    return jax.random.uniform(jax.random.fold_in(key, 7))


@pytest.mark.parametrize("form", ["scan", "blocked", "mesh of 8 devices"])
def test_an_effect_in_one_file_runs_in_every_form(form):
    """Use 12 items, so that a mesh of 8 pads the arrays to 16, and check each round by hand."""
    rng, task = np.random.default_rng(1), make_task(items=12, width=6, queries=30)
    effect = Outage(
        every=np.array([2, 3, 5, 7] * 3),
        worth=rng.uniform(size=30).astype(np.float32),
        sign=rng.choice([-1, 1], size=(30, 6)).astype(np.float32),
        next_label=np.roll(np.arange(12), -1),
    )
    effect = jax.device_put(effect)
    devices, environment = 8 if form.startswith("mesh") else None, Environment(effects=(effect,))
    learner = jr.frozen() if form != "scan" else jr.frozen()._replace(structure=None)
    run = jr.simulate(learner, task, exposures=3, environment=environment, devices=devices)
    assert run.form == form
    t, query, item = np.arange(90), run.order[0], run.trace.item[0]
    odd = (t % 2 == 1)[:, None]
    vectors = np.where(odd, effect.sign[query], 1) * task.queries[query]
    available = (t + 1)[:, None] % np.asarray(effect.every) != 0
    scores = np.where(available, vectors @ task.theta.T, -np.inf)
    np.testing.assert_array_equal(item, scores.argmax(axis=1))
    labels = task.labels[query]
    labels = np.where(odd & (labels >= 0), (labels + 1) % 12, labels)
    success = (labels == item[:, None]).any(axis=1)
    np.testing.assert_array_equal(run.trace.success[0], success)
    reward, observed = run.trace.reward[0], ~np.isnan(run.trace.reward[0])
    worth = np.where(success, np.asarray(effect.worth)[query], 0)
    np.testing.assert_allclose(reward[observed], worth[observed], rtol=1e-6)
    np.testing.assert_array_equal(observed, drawn(2 * t + 1) < 0.7)
    assert 40 < observed.sum() < 80
    kept = np.asarray(always_available(environment, 4, jnp.ones(12, bool)))
    np.testing.assert_array_equal(kept, [False, False, True, True] * 3)


def test_a_sharded_field_has_an_axis_of_items():
    class Wrong(NamedTuple):
        SHARDED = ("worth",)
        worth: Float[Array, " N"]

    with pytest.raises(ValueError, match=r"Wrong.worth is declared SHARDED and has no axis I"):
        partition_specs(Environment(effects=(Wrong(jnp.ones(3)),)), "item")


def by_round(pattern, rounds):
    """Return which items are available in each round, [T, I]."""
    environment = Environment(**pattern._asdict())
    every = jnp.ones(len(pattern.arrives), bool)
    return np.stack([available_at(environment, jnp.asarray(t), every) for t in range(rounds)])


@pytest.mark.parametrize(
    ("pattern", "counts"),
    [
        (availability.always(8), [8] * 6),
        (availability.later(8, 0.5, at=3), [4, 4, 4, 8, 8, 8]),
        (availability.one_by_one(8, 0.5, first=1, last=4), [4, 5, 6, 7, 8, 8]),
        (availability.leaving(8, 0.25, at=2), [8, 8, 6, 6, 6, 6]),
        (availability.away(8, 0.5, leaves=1, back=4), [8, 4, 4, 4, 8, 8]),
    ],
    ids=["always", "later", "one_by_one", "leaving", "away"],
)
def test_the_number_of_available_tools_in_each_round_is_right(pattern, counts):
    assert by_round(pattern, 6).sum(axis=1).tolist() == counts


def test_the_tools_that_leave_are_the_tools_that_return():
    available = by_round(availability.away(9, 0.4, leaves=1, back=3), 4)
    gone = ~available[1]
    assert gone.sum() == 4
    np.testing.assert_array_equal(available[2], ~gone)


def test_the_part_is_drawn_by_the_seed():
    one, same, other = (availability.later(50, 0.5, at=9, seed=seed).arrives for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
