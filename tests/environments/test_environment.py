"""Responses to a slate, availability, combined effects and user-defined effects."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

import jaxret as jr
from jaxret.environments import drift, feedback, interventions
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
from tests.problems import fixed_delay

ROUNDS = 20_000
SLATE = Slate(items=jnp.array([7, 2, 9, 4]), propensity=jnp.array([0.4, 0.3, 0.2, 0.1]))


def many_responses(environment, labels, slate=SLATE):
    keys = jax.random.split(jax.random.key(3), ROUNDS)
    query = jnp.asarray(0)
    ask = lambda key: respond(environment, key, slate, jnp.asarray(labels), query)  # noqa: E731
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(ask))(keys))


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
    choice, feedback, truth = respond(
        Environment(), jax.random.key(0), SLATE, jnp.asarray(labels), jnp.asarray(0)
    )
    assert (choice.item, truth, feedback.reward) == (7, success, success)
    assert choice.propensity == SLATE.propensity[0]


def test_a_judge_gives_the_reward_and_success_is_by_the_labels():
    verdicts = np.full((3, 10), 0.5)
    verdicts[1, [7, 9]] = 0.25, 0.75  # one query, and two of the items shown
    answer = respond(
        judged(verdicts), jax.random.key(0), SLATE, jnp.asarray([7, -1]), jnp.asarray(1)
    )
    assert (answer[0].item, answer[1].reward, answer[2]) == (7, 0.25, 1)
    assert answer[1].reward.dtype == SLATE.propensity.dtype
    third = judged(verdicts)._replace(reranker=lambda *given: 2)  # the item used decides
    choice, feedback, _ = respond(third, jax.random.key(0), SLATE, jnp.asarray([7]), jnp.asarray(1))
    assert (choice.item, feedback.reward) == (9, 0.75)
    noisy = judged(verdicts)._replace(noise_rate=0.2)
    ask = lambda key: respond(noisy, key, SLATE, jnp.asarray([7, -1]), jnp.asarray(1))  # noqa: E731
    rewards = jax.vmap(ask)(jax.random.split(jax.random.key(3), ROUNDS))[1].reward
    assert set(rewards.tolist()) == {0.25, 0.75}
    assert is_rate(np.asarray(rewards) == 0.75, 0.2)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (np.zeros(4), r"table \[N, I\], got shape \(4,\)"),
        ([[0.0, 1.0], [0.5, 1.5]], r"got 1.5 for query 1 and item 1 \(1 such\)"),
        ([[np.nan, -1.0]], r"got nan for query 0 and item 0 \(2 such\)"),
    ],
)
def test_verdicts_that_are_no_rewards_are_refused(table, said):
    with pytest.raises(ValueError, match=said):
        judged(table)


@pytest.mark.parametrize("accuracy", [0.0, 0.6, 1.0])
def test_a_reranker_finds_the_right_item_at_its_accuracy_or_by_luck(accuracy):
    environment = Environment(reranker=simulated_reranker(accuracy=accuracy))
    choice, _, success = many_responses(environment, [9, -1])
    assert is_rate(success, accuracy + (1 - accuracy) / 4)
    wrong = choice.item[choice.item != 9]
    for item in (7, 2, 4):  # errors are uniform over the slate
        assert len(wrong) == 0 or is_rate(wrong == item, 1 / 3)


def test_a_judging_reranker_uses_the_item_of_the_slate_with_the_largest_verdict():
    verdicts = np.full((2, 10), 0.5)
    verdicts[1, [0, 4]] = 1.0, 0.9  # item 0 is not shown
    environment = Environment(reranker=judging_reranker(verdicts))
    choice, feedback, success = respond(
        environment, jax.random.key(0), SLATE, jnp.asarray([7, -1]), jnp.asarray(1)
    )
    assert (choice.item, success, feedback.reward) == (4, 0, 0)
    np.testing.assert_allclose(choice.propensity, 0.1)
    with pytest.raises(ValueError, match=r"verdicts must be in \[0, 1\], got 2"):
        judging_reranker(2 * verdicts)


def test_a_reranker_that_sees_no_right_item_picks_any():
    environment = Environment(reranker=simulated_reranker(accuracy=1.0))
    choice, _, success = many_responses(environment, [3, -1])
    assert not success.any()
    assert all(is_rate(choice.item == item, 0.25) for item in (7, 2, 9, 4))


def test_the_choice_carries_the_propensity_of_the_item_that_was_used():
    environment = Environment(reranker=simulated_reranker(accuracy=0.5))
    choice, _, _ = many_responses(environment, [9, -1])
    chance = {7: 0.4, 2: 0.3, 9: 0.2, 4: 0.1}
    np.testing.assert_allclose(choice.propensity, [chance[i] for i in choice.item], rtol=1e-6)


def test_a_reranker_may_read_the_query_instead_of_the_labels():
    environment = Environment(reranker=lambda key, slate, labels, query: query)
    choice, _, _ = respond(environment, jax.random.key(0), SLATE, jnp.asarray([-1]), jnp.asarray(2))
    assert choice.item == 9


def test_items_are_available_from_their_arrival_until_they_leave():
    environment = Environment(arrives=jnp.array([0, 2, 0, 1]), leaves=jnp.array([9, 9, 2, 3]))
    available = jnp.array([True, True, True, False])  # the last item is not in the catalogue
    by_round = [available_at(environment, jnp.asarray(t), available).tolist() for t in range(4)]
    assert by_round == [
        [True, False, True, False],
        [True, False, True, False],
        [True, True, False, False],
        [True, True, False, False],
    ]


def test_an_item_that_leaves_before_it_arrives_is_away_in_between():
    environment = Environment(arrives=jnp.array([3, 2, 2]), leaves=jnp.array([1, 2, 9]))
    by_round = [
        available_at(environment, jnp.asarray(t), jnp.ones(3, bool)).tolist() for t in range(5)
    ]
    assert list(zip(*by_round, strict=True)) == [
        (True, False, False, True, True),
        (False, False, False, False, False),  # never available, as for any empty interval
        (False, False, True, True, True),
    ]


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: label_noise(0.7), r"noise_rate must be in \[0, 0.5\], got 0.7"),
        (lambda: label_noise([0.1, 0.6]), r"noise_rate must be in \[0, 0.5\], got \[0.1, 0.6\]"),
        (lambda: simulated_reranker(accuracy=-0.1), r"accuracy must be in \[0, 1\], got -0.1"),
    ],
)
def test_settings_outside_their_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("form", ["blocked", pytest.param("8 devices", marks=pytest.mark.slow)])
def test_effects_that_do_not_intervene_have_an_exact_blocked_form(sixteen, blocked_effects, form):
    learner = jr.orag(tau=0.3, eta=0.02, k=3)
    with jax.enable_x64(True):
        catalogue = Catalogue(jnp.asarray(sixteen.theta, float), jnp.arange(16) % 7 != 6)
        order = jnp.asarray(np.tile(np.arange(20), 3))
        stream = Stream(jnp.asarray(sixteen.queries, float), jnp.asarray(sixteen.labels), order)
        start, key, blocks = learner.init(*catalogue), jax.random.key(3), {"block": 16, "tile": 8}
        expected = jax.jit(lambda: scan_rounds(learner, start, blocked_effects, stream, key))()
        if form == "blocked":
            run = lambda: simulate_blocked(learner, start, blocked_effects, stream, key, **blocks)  # noqa: E731
        else:
            mesh = sharding.make_mesh(item=8)
            run = lambda: simulate_on_mesh(  # noqa: E731
                learner, start, blocked_effects, stream, key, mesh=mesh, **blocks
            )
        state, trace = jax.jit(run)()
    np.testing.assert_array_equal(trace.item, expected[1].item)
    np.testing.assert_allclose(trace.reward, expected[1].reward)
    np.testing.assert_allclose(state.theta, expected[0].theta, atol=1e-12)
    assert 5 < np.isnan(np.asarray(trace.reward)).sum() < 50


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (
            {"noise_rate": np.zeros(3)},
            r"shape of noise_rate must be \(\) or \(16,\) \[I items\], got \(3,\)",
        ),
        ({"noise_rate": np.full(16, 0.7)}, r"noise_rate must be None or in \[0, 0.5\]"),
        (
            {"drift": drift.swapped([[0], [1]], at=1)},
            r"shape of drift.labels must be \(20, 2\) \[N queries, L labels\], got \(2, 1\)",
        ),
        (
            {"rotation": drift.turning(np.ones((3, 4)), angle=1.0, rounds=9)},
            r"rotation.turned must be \(20, 8\)",
        ),
        ({"poison": feedback.poisoned(items=3, queries=20)}, r"poison.tools must be \(16,\)"),
        ({"poison": feedback.poisoned(items=16, queries=3)}, r"poison.queries must be \(20,\)"),
        (
            {"rewriting": interventions.rewritten_documents(*np.ones((2, 2, 8)), at=1)},
            r"rewriting.before must be \(16, 8\) \[I items, width d\], got \(2, 8\)",
        ),
    ],
)
def test_effects_for_another_task_are_refused(sixteen, part, message):
    with pytest.raises(ValueError, match=message):
        jr.simulate(jr.greedy(), sixteen, environment=Environment(**part))


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


@pytest.mark.parametrize("form", ["scan", "blocked", "mesh of 8 devices"])
def test_an_effect_in_one_file_runs_in_every_form(form):
    """Use 12 items, so that a mesh of 8 pads the arrays to 16, and check each round by hand."""
    rng = np.random.default_rng(1)
    unit = lambda *shape: (x := rng.normal(size=shape)) / np.linalg.norm(x, axis=1)[:, None]  # noqa: E731
    labels = np.stack([rng.permutation(12)[:2] for _ in range(30)])
    task = jr.Task.from_arrays(unit(12, 6), unit(30, 6), labels, name="twelve")
    effect = Outage(
        every=np.array([2, 3, 5, 7] * 3),
        worth=rng.uniform(size=30).astype(np.float32),
        sign=rng.choice([-1, 1], size=(30, 6)).astype(np.float32),
        next_label=jnp.asarray(np.roll(np.arange(12), -1)),
    )
    effect = jax.tree.map(jnp.asarray, effect)
    learner = jr.frozen() if form != "scan" else jr.frozen()._replace(structure=None)
    devices = 8 if form.startswith("mesh") else None
    environment = Environment(effects=(effect,))
    run = jr.simulate(learner, task, exposures=3, environment=environment, devices=devices)
    assert run.form == form
    t, query, item = np.arange(90), run.order[0], run.trace.item[0]
    odd = (t % 2 == 1)[:, None]
    vectors = np.where(odd, effect.sign[query], 1) * task.queries[query]
    available = (t + 1)[:, None] % np.asarray(effect.every) != 0
    scores = np.where(available, vectors @ task.theta.T, -np.inf)
    np.testing.assert_array_equal(item, scores.argmax(axis=1))
    labels = np.where(odd, (task.labels[query] + 1) % 12, task.labels[query])
    success = (labels == item[:, None]).any(axis=1)
    np.testing.assert_array_equal(run.trace.success[0], success)
    reward, observed = run.trace.reward[0], ~np.isnan(run.trace.reward[0])
    worth = np.where(success, np.asarray(effect.worth)[query], 0)
    np.testing.assert_allclose(reward[observed], worth[observed], rtol=1e-6)
    keys = [jax.random.fold_in(jax.random.key(0), 2 * n + 1) for n in range(90)]
    draws = [jax.random.uniform(jax.random.fold_in(key, 7)) < 0.7 for key in keys]
    np.testing.assert_array_equal(observed, draws)
    assert 40 < observed.sum() < 80
    kept = np.asarray(always_available(environment, 4, jnp.ones(12, bool)))
    np.testing.assert_array_equal(kept, [False, False, True, True] * 3)


@pytest.mark.parametrize(
    ("effects", "message"),
    [
        (
            (Outage(jnp.ones(3, int), jnp.ones(20), jnp.ones((20, 8)), jnp.ones(16, int)),),
            r"shape of effects\[0\].every must be \(16,\) \[I items\], got \(3,\)",
        ),
        (
            (fixed_delay(1), Slate(items=1, propensity=1)),
            r"effects\[1\] must be a NamedTuple with one of the methods avail.*got a Slate",
        ),
    ],
)
def test_effects_that_do_not_fit_are_refused(sixteen, effects, message):
    with pytest.raises(ValueError, match=message):
        jr.simulate(jr.greedy(), sixteen, environment=Environment(effects=effects))


def test_a_sharded_field_has_an_axis_of_items():
    class Wrong(NamedTuple):
        SHARDED = ("worth",)
        worth: Float[Array, " N"]

    with pytest.raises(ValueError, match=r"Wrong.worth is declared SHARDED and has no axis I"):
        partition_specs(Environment(effects=(Wrong(jnp.ones(3)),)), "item")
