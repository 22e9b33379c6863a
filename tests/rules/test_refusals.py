"""Settings outside their range, with the name of the setting in the message."""

import jax
import jax.numpy as jnp
import pytest

from jaxret.rules import estimators, policies, preconditioners, projections, query_maps, schedules

REFUSED = [
    (estimators.importance_weighted, {"divide_by": "p"}, "divide_by must be 'propensity'"),
    (estimators.debiased, {"noise_rate": 0.5}, r"noise_rate must be in \[0, 0.5\), got 0.5"),
    (estimators.debiased, {"noise_rate": -0.1}, r"noise_rate must be in \[0, 0.5\)"),
    (estimators.implicit_exploration, {"gamma": 0.0}, "gamma must be > 0, got 0.0"),
    (estimators.clipped, {"floor": 0.0}, r"floor must be in \(0, 1\], got 0.0"),
    (estimators.bandit_likelihood, {"floor": 1.0}, r"floor must be in \(0, 1\), got 1.0"),
    (policies.softmax, {"temperature": 0.0}, "temperature must be > 0, got 0.0"),
    (policies.softmax, {"k": 0}, "k must be >= 1, got 0"),
    (policies.greedy, {"k": -1}, "k must be >= 1, got -1"),
    (policies.epsilon_greedy, {"epsilon": 1.5}, r"epsilon must be in \[0, 1\], got 1.5"),
    (policies.epsilon_greedy, {"epsilon": 0.1, "k": 0}, "k must be >= 1, got 0"),
    (preconditioners.second_moment, {"ridge": 0.0}, "ridge must be > 0, got 0.0"),
    (projections.ball, {"radius": 0.0}, "radius must be > 0, got 0.0"),
    (projections.sphere, {"radius": -1.0}, "radius must be > 0, got -1.0"),
    (query_maps.mean_centred, {"share": 1.5}, "share must be in .0, 1., got 1.5"),
    (query_maps.mean_centred, {"count": 0.0}, "count must be > 0, got 0.0"),
    (query_maps.linear, {"rate": 0.0}, "rate must be > 0, got 0.0"),
    (query_maps.low_rank, {"rank": 0}, "rank must be >= 1, got 0"),
    (schedules.cosine, {"rounds": 0}, "rounds must be >= 1, got 0"),
]


@pytest.mark.parametrize(("make", "settings", "message"), REFUSED)
def test_settings_outside_their_range_are_refused(make, settings, message):
    with pytest.raises(ValueError, match=message):
        make(**settings)


@pytest.mark.parametrize(
    "rule", [policies.softmax(k=6), policies.greedy(k=6), policies.epsilon_greedy(epsilon=0.1, k=6)]
)
def test_more_items_than_the_catalogue_holds_are_refused(rule):
    with pytest.raises(ValueError, match="of a catalogue of 5"):
        rule.show(jax.random.key(0), jnp.zeros(5), None)
