import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.theory.comparators import losses
from jaxret.theory.regret import cumulative_regret
from tests.theory.conftest import losses_and_steps


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    theta, queries = rng.normal(size=(7, 4)), rng.normal(size=(600, 4))  # more than two chunks
    labels = np.where(
        rng.random((600, 3)) < 0.4, -1, rng.permuted(np.tile(np.arange(3), (600, 1)), axis=1)
    )
    labels[:, 0] = rng.integers(3, 7, 600)
    return theta, queries, labels


def test_losses_are_the_mean_negative_log_probability_of_the_labels(case):
    with jax.enable_x64(True):
        got = losses(*map(jnp.asarray, case), tau=0.3)
    np.testing.assert_allclose(got, losses_and_steps(*case, 0.3)[0], rtol=1e-12)


def test_the_gradient_is_p_less_the_label_times_the_query_over_tau(case):
    theta, queries, labels = case
    labels, tau = labels[:, :1], 0.3
    _, c = losses_and_steps(theta, queries, labels, tau)
    by_hand = c.T @ queries / tau
    with jax.enable_x64(True):
        q, l = jnp.asarray(queries), jnp.asarray(labels)
        got = jax.grad(lambda t: losses(t, q, l, tau=tau).sum())(jnp.asarray(theta))
    np.testing.assert_allclose(got, by_hand, rtol=1e-9, atol=1e-9)


def test_regret_adds_up_what_the_comparator_would_have_saved():
    ours = np.array([[3.0, 1.0, 1.0], [2.0, 2.0, 2.0]], np.float32)
    order = np.array([[0, 1, 0], [1, 1, 0]])
    np.testing.assert_array_equal(
        cumulative_regret(ours, np.array([1.0, 0.5]), order), [[2.0, 2.5, 2.5], [1.5, 3.0, 4.0]]
    )


def test_a_long_sum_of_small_regrets_is_not_lost_in_float32():
    n = 300_000
    ours, theirs = np.full(n, 0.1, np.float32), np.zeros(1, np.float32)
    got = cumulative_regret(ours, theirs, np.zeros(n, np.int32))
    np.testing.assert_allclose(got[-1], n * float(np.float32(0.1)), rtol=1e-12)


def test_losses_and_order_of_different_shapes_are_refused():
    with pytest.raises(ValueError, match=r"losses \(2, 3\) and order \(3,\)"):
        cumulative_regret(np.zeros((2, 3)), np.zeros(1), np.zeros(3, int))


def test_rounds_of_a_stream_that_has_ended_add_nothing():
    losses = np.array([[3.0, 2.0], [5.0, np.nan]])
    order = np.array([[1, 0], [0, -1]])
    found = cumulative_regret(losses, np.array([0.5, 1.0]), order)
    np.testing.assert_array_equal(found, [[2.0, 3.5], [4.5, 4.5]])
