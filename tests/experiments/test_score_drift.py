"""Bounds on the drift of scores under Adam, against optax and the sequence that attains them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.score_drift import adam_ratio, adamw_score_drift, sgd_mean_score_drift
from jaxret.environments.environment import Environment
from jaxret.learners import rank_one
from jaxret.rules import policies, schedules
from jaxret.rules.estimators import importance_weighted
from jaxret.simulation.scan import scan_rounds
from jaxret.types import Stream


def directions(gradients):
    """Computes Adam's directions with optax for a sequence of scalars."""
    adam = optax.scale_by_adam(eps=0.0)
    state, found = adam.init(jnp.zeros(())), []
    for gradient in gradients:
        update, state = adam.update(jnp.asarray(gradient), state)
        found.append(float(update))
    return np.array(found)


def test_the_first_steps_are_one_and_the_last_near_their_limit():
    ratio = adam_ratio(20_000)
    assert ratio[0] == pytest.approx(1.0)
    limit = 0.1 / np.sqrt(0.001 * (1 - 0.81 / 0.999))
    assert ratio[-1] == pytest.approx(limit, rel=1e-6)
    assert limit == pytest.approx(7.27, abs=0.01)
    assert (np.diff(ratio) >= -1e-12).all()


def test_no_sequence_exceeds_the_ratio_and_one_attains_it():
    steps, rng = 60, np.random.default_rng(0)
    with jax.enable_x64(True):
        for _ in range(5):
            gradients = rng.standard_normal(steps) * rng.choice([1e-3, 1.0, 30.0], steps)
            assert (np.abs(directions(gradients)) <= adam_ratio(steps) + 1e-9).all()
        s = np.arange(1, steps + 1)
        worst = (0.9 / 0.999) ** (steps - s)  # the ratio w_s / u_s
        assert directions(worst)[-1] == pytest.approx(adam_ratio(steps)[-1], rel=1e-6)


def test_adamw_moves_no_score_further():
    rng = np.random.default_rng(1)
    rates = 1e-3 / np.sqrt(np.arange(1, 41))
    query = rng.standard_normal(6)
    adamw = optax.adamw(lambda t: 1e-3 / jnp.sqrt(t + 1.0), weight_decay=0.01)
    theta = jnp.asarray(rng.standard_normal(6))
    start, state, longest = theta, adamw.init(theta), 0.0
    for _ in rates:
        update, state = adamw.update(jnp.asarray(query * rng.lognormal()), state, theta)
        theta = theta + update
        longest = max(longest, float(jnp.linalg.norm(theta)), float(jnp.linalg.norm(start)))
    moved = abs(float((theta - start) @ query))
    bound = adamw_score_drift(rates, query, longest=longest)
    assert 0.1 * bound < moved <= bound


def test_the_mean_change_of_scores_by_sgd_is_below_its_bound():
    keys = jax.random.split(jax.random.key(0), 2)
    theta, queries = (jax.random.normal(key, (5, 4)) for key in keys)
    theta, queries = (x / jnp.linalg.norm(x, axis=1, keepdims=True) for x in (theta, queries))
    order = jnp.arange(60) % 5
    stream = Stream(queries=queries, labels=jnp.arange(5)[:, None], order=order)
    taper = schedules.inverse_sqrt()
    rule = rank_one.rank_one(
        "x",
        estimator=importance_weighted(),
        policy=policies.softmax(),
        schedule=taper,
        tau=1.0,
        eta=0.01,
    )

    def change(key):
        state = rule.init(theta, jnp.ones(5, bool))
        end, _ = scan_rounds(rule, state, Environment(), stream, key)
        return (end.theta - theta) @ queries.T

    changes = jax.jit(jax.vmap(change))(jax.random.split(jax.random.key(1), 2000))
    bound = sgd_mean_score_drift(0.01 * taper(jnp.arange(60)), tau=1.0, share=0.2)
    largest = float(jnp.abs(changes.mean(axis=0)).max())
    assert 0.1 * bound < largest <= bound


def test_settings_outside_their_range_are_refused():
    with pytest.raises(ValueError, match=r"b2 must be in \(b1\^2, 1\)"):
        adam_ratio(3, b1=0.9, b2=0.5)
    with pytest.raises(ValueError, match=r"share must be in \[0, 1\], got 2"):
        sgd_mean_score_drift(np.ones(3), tau=1.0, share=2)
