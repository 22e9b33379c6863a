"""Learning rate schedules against optax and against the reference's loop."""

import math

import jax
import numpy as np
import optax
import pytest

from jaxret.training.schedules import reference_warmup_cosine, warmup_cosine


def rates(schedule, steps):
    return np.asarray(jax.jit(jax.vmap(schedule))(np.arange(steps)))


@pytest.mark.parametrize(("warmup", "total"), [(1, 20), (5, 20), (20, 20)])
def test_warmup_cosine_rises_to_the_peak_and_falls_to_zero_after_the_last_step(warmup, total):
    got = rates(warmup_cosine(0.3, warmup=warmup, total=total), total + 3)
    theirs = optax.warmup_cosine_decay_schedule(0.3 / warmup, 0.3, warmup - 1, total)
    if warmup > 1:  # optax needs at least one step of warm-up
        np.testing.assert_allclose(got, rates(theirs, total + 3), atol=1e-7)
    np.testing.assert_allclose(got[0], 0.3 / warmup, rtol=1e-6)
    np.testing.assert_allclose(got[warmup - 1], 0.3, rtol=1e-6)
    assert (got[:total] > 0).all()
    np.testing.assert_allclose(got[total:], 0, atol=1e-8)


def test_the_reference_starts_at_zero_and_ends_above_it():
    got = rates(reference_warmup_cosine(2e-5, warmup=100, total=1000), 1000)
    assert got[0] == 0
    np.testing.assert_allclose(got[50], 1e-5, rtol=1e-6)
    assert got.max() < 2e-5
    last = 0.99 * (1 + math.cos(math.pi * 0.9)) / 2  # 2.4 % of the peak
    np.testing.assert_allclose(got[-1] / 2e-5, last, rtol=1e-4)


@pytest.mark.parametrize("schedule", [warmup_cosine, reference_warmup_cosine])
def test_optax_takes_them_under_jit(schedule):
    rate = schedule(0.5, warmup=3, total=10)
    optimizer = optax.sgd(rate)
    one, update = np.float32(1), jax.jit(optimizer.update)
    state = optimizer.init(one)
    for expected in rates(rate, 10):
        step, state = update(one, state)
        np.testing.assert_allclose(-np.asarray(step), expected, rtol=1e-6)


def test_impossible_lengths_are_refused():
    with pytest.raises(ValueError, match=r"warmup must be >= 1 .*, got 0"):
        warmup_cosine(1.0, warmup=0, total=10)
    with pytest.raises(ValueError, match=r"warmup must be >= 2 .*, got 1"):
        reference_warmup_cosine(1.0, warmup=1, total=10)
    for schedule in (warmup_cosine, reference_warmup_cosine):
        with pytest.raises(ValueError, match="total must be >= warmup = 11, got 10"):
            schedule(1.0, warmup=11, total=10)
