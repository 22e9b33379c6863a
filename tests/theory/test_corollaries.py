import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.rules import projections
from jaxret.theory.assumptions import final_regrets
from jaxret.theory.theorems import (
    Constants,
    corollary_5_2,
    corollary_b3,
    measured_constants,
    theorem_5_1,
    theorem_b2,
)
from tests.theory.conftest import ITEMS, RADIUS

ROUNDS, RHO = 320, 0.45
CONSTANTS = Constants(theta=4.0, q=12.0, p_label=0.01, p_item=0.005)


@pytest.fixture(scope="module")
def near(clean):
    return clean._replace(comparator=0.9 * clean.theta_1)


@pytest.fixture(scope="module")
def noisy(noisy):
    return noisy._replace(comparator=1.1 * noisy.theta_1)


def with_step(run, eta):
    return run._replace(rule=run.rule._replace(eta=eta))


def test_corollary_5_2_is_smallest_at_its_step_size_and_is_then_the_papers(near):
    theta, q, p, _ = CONSTANTS
    eta = np.sqrt(p * theta / (q * (1 - p) * (1 + 2 * p) * ROUNDS))
    value = corollary_5_2(with_step(near, eta), CONSTANTS).value
    np.testing.assert_allclose(
        value, np.sqrt(theta * q * (1 - p) * (1 + 2 * p) * ROUNDS / p), rtol=1e-12
    )
    for factor in (0.5, 0.99, 1.01, 2.0):
        assert corollary_5_2(with_step(near, factor * eta), CONSTANTS).value > value


def test_corollary_5_2_is_above_theorem_5_1_and_above_the_regret(near):
    bound = corollary_5_2(near, measured_constants(near))
    assert bound.holds
    assert bound.value > theorem_5_1(near).value > final_regrets(near).mean()


@pytest.mark.parametrize(
    ("constant", "factor", "name"),
    [
        ("theta", 0.9, "||Theta_1 - U||^2"),
        ("q", 0.9, "||q / tau||^2"),
        ("p_label", 1.1, "p of the right item"),
    ],
)
def test_a_constant_that_the_run_exceeds_is_named(near, constant, factor, name):
    constants = measured_constants(near)
    constants = constants._replace(**{constant: factor * getattr(constants, constant)})
    assert [a.name for a in corollary_5_2(near, constants).assumptions if not a.holds] == [name]


def test_corollary_b3_is_smallest_at_its_step_size_and_is_then_the_papers(noisy):
    theta, q, p, p_item = CONSTANTS
    rate = q * (1 - 2 * p + 1 / p + RHO * ITEMS / p_item)
    eta = np.sqrt(theta / (2 * rate * ROUNDS))
    bound = corollary_b3(with_step(noisy, eta), CONSTANTS, noise_rate=RHO)
    linear = 2 * RHO * RADIUS * ITEMS * np.sqrt(q) * ROUNDS
    np.testing.assert_allclose(bound.terms["bias"], linear, rtol=1e-12)
    np.testing.assert_allclose(
        bound.value, theta / (2 * eta) + eta * rate * ROUNDS + linear, rtol=1e-12
    )
    for factor in (0.5, 0.99, 1.01, 2.0):
        other = with_step(noisy, factor * eta)
        assert corollary_b3(other, CONSTANTS, noise_rate=RHO).value > bound.value


def test_corollary_b3_is_above_theorem_b2_and_above_the_regret(noisy):
    bound, theorem = (
        corollary_b3(noisy, measured_constants(noisy), noise_rate=RHO),
        theorem_b2(noisy, noise_rate=RHO),
    )
    assert bound.holds
    assert bound.terms["bias"] > theorem.terms["bias"]
    assert bound.value > theorem.value > final_regrets(noisy).mean()


def test_without_a_ball_corollary_b3_is_void_and_infinite(noisy):
    free = noisy._replace(rule=noisy.rule._replace(projection=projections.none()))
    bound = corollary_b3(free, measured_constants(noisy), noise_rate=RHO)
    assert bound.value == np.inf
    assert [a.name for a in bound.assumptions if not a.holds] == ["rows in a ball: radius"]


def test_the_least_p_of_an_item_is_the_harmonic_mean_over_the_catalogue(noisy):
    evenly = noisy._replace(
        trace=noisy.trace._replace(inverse_p=jnp.full_like(noisy.trace.inverse_p, ITEMS**2))
    )
    assert measured_constants(evenly).p_item == pytest.approx(1 / ITEMS)
