"""Swapped labels against loops, and rotated queries against matrix exponentials."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import jaxret as jr
from jaxret.environments import drift

AT = 70


def test_tools_of_the_share_take_each_others_queries_in_one_circle(task):
    before, tools = task.labels, np.unique(task.labels[task.labels >= 0])
    after = np.asarray(drift.swapped(before, share=0.5, at=3, seed=1).labels)
    np.testing.assert_array_equal(after < 0, before < 0)
    heirs = {}
    for old, new in zip(before[before >= 0], after[before >= 0], strict=True):
        assert heirs.setdefault(int(old), int(new)) == new  # one successor per tool
    moved = [tool for tool in tools if heirs[tool] != tool]
    assert len(moved) == round(0.5 * len(tools))
    steps, tool = 1, heirs[moved[0]]
    while tool != moved[0]:
        steps, tool = steps + 1, heirs[tool]
    assert steps == len(moved)


@pytest.mark.parametrize(("t", "right"), [(2, [0, -1]), (3, [1, -1]), (9, [1, -1])])
def test_the_round_of_the_drift_is_the_first_of_the_new_labels(t, right):
    moved = drift.swapped([[0, -1], [1, -1]], share=1.0, at=3)
    labels = moved.labels_at(jnp.asarray(t), jnp.asarray(0), jnp.asarray([0, -1]))
    np.testing.assert_array_equal(labels, right)


def test_other_tools_are_right_from_the_round_of_the_drift_on(task):
    """In every form: see `Outage` in test_environment.py."""
    environment = jr.Environment(drift=drift.swapped(task.labels, share=1.0, at=AT))
    run = jr.simulate(jr.greedy(), task, exposures=3, seeds=2, environment=environment)
    late = np.arange(run.order.shape[1])[:, None] >= AT
    for order, item, success in zip(run.order, run.trace.item, run.trace.success, strict=True):
        labels = np.where(late, environment.drift.labels[order], task.labels[order])
        np.testing.assert_array_equal(success, (labels == item[:, None]).any(axis=1))
        before = (task.labels[order] == item[:, None]).any(axis=1)
        assert (success != before)[AT:].any()


def test_queries_turn_by_the_angle_and_keep_their_places_to_one_another(task):
    rotation = drift.turning(task.queries, angle=1.2, rounds=100, seed=2)
    turn, plain = jax.vmap(rotation.queries_at, (None, 0, 0)), task.queries[:6]
    for t in (0, 25, 100):
        turned = np.asarray(turn(jnp.asarray(t), np.arange(6), plain))
        cosines = (turned * plain).sum(axis=1)
        np.testing.assert_allclose(cosines, np.cos(1.2 * t / 100), atol=1e-5)
        np.testing.assert_allclose(turned @ turned.T, plain @ plain.T, atol=1e-5)


def test_tools_are_chosen_for_the_query_as_it_is_asked(task):
    rounds = 2 * len(task)
    rotation = drift.turning(task.queries, angle=2.0, rounds=rounds, seed=2)
    environment = jr.Environment(rotation=rotation)
    run = jr.simulate(jr.frozen(), task, exposures=2, environment=environment)
    # The generator, from a quarter turn; its matrix exponentials are the rotations.
    quarter = np.linalg.lstsq(task.queries, np.asarray(rotation.turned), rcond=None)[0].T
    np.testing.assert_allclose(quarter + quarter.T, 0, atol=1e-5)
    for t, (query, item) in enumerate(zip(run.order[0], run.trace.item[0], strict=True)):
        vector = expm(2.0 * t / rounds * quarter) @ task.queries[query]
        scores = task.theta @ vector
        assert scores[item] >= scores.max() - 1e-5
    unturned = (task.queries @ task.theta.T).argmax(axis=1)
    assert (unturned[run.order[0]] != run.trace.item[0]).mean() > 0.2
