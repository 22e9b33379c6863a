"""NUDGE against brute force over gamma and against examples worked by hand."""

import jax
import numpy as np
import pytest

import jaxret as jr
from jaxret.methods.nudge import GRID, Config, fit, nudge_m, nudge_n

I, D, N, V = 40, 8, 90, 60
UNUSED, AWAY, NEAR = 39, 0, 1  # indices: no query; a query points away; a query is close


def problem(seed):
    """Make documents whose queries lie in another direction, so that moving rows helps."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(I, D)) * rng.uniform(0.5, 2, (I, 1))
    usage = unit(theta) + 0.25 * rng.normal(size=(I, D))

    def asked(count, items):
        labels = np.full((count, 2), -1, np.int32)
        for row in labels:
            used = rng.choice(items, rng.choice([1, 2], p=[0.7, 0.3]), replace=False)
            row[: len(used)] = used
        means = np.stack([usage[row[row >= 0]].mean(axis=0) for row in labels])
        return means + 0.3 * rng.normal(size=means.shape), labels

    queries, labels = asked(N, np.arange(2, UNUSED))
    close = theta[NEAR] + 0.02 * rng.normal(size=D)
    queries = np.concatenate([queries, [-theta[AWAY], close]])
    labels = np.concatenate([labels, [[AWAY, -1], [NEAR, -1]]]).astype(np.int32)
    return theta, queries, labels, *asked(V, np.arange(I))


@pytest.fixture(params=[0, 1, 2], ids="seed {}".format)
def case(request):
    return problem(request.param)


def run(nudge, *arguments):
    """Compute embeddings and gamma with a compiled program in float64."""
    with jax.enable_x64(True):
        moved, gamma = jax.jit(nudge)(*arguments)
        return np.asarray(moved), float(gamma)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def pulls(theta, queries, labels):
    """Sum the queries of each tool, one tool at a time."""
    return np.stack([queries[(labels == i).any(axis=1)].sum(axis=0) for i in range(len(theta))])


def hits(theta, queries, labels):
    first = (queries @ theta.T).argmax(axis=1)
    return (first[:, None] == labels).any(axis=1).sum()


def test_m_moves_every_used_tool_by_gamma_towards_its_queries(case):
    theta, queries, labels, *validation = case
    moved, gamma = run(nudge_m, theta, queries, labels, *validation)
    step, sums = moved - unit(theta), pulls(theta, queries, labels)
    used = (sums != 0).any(axis=1)
    assert gamma > 0
    assert not used[UNUSED]
    np.testing.assert_allclose(step[used], gamma * unit(sums[used]), atol=1e-12)
    np.testing.assert_allclose(step[~used], 0, atol=1e-15)


def test_m_takes_the_smallest_gamma_with_the_most_first_places(case):
    theta, queries, labels, *validation = case
    _, gamma = run(nudge_m, theta, queries, labels, *validation)
    sums = pulls(theta, queries, labels)
    towards = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-300)

    def at(gamma):
        return hits(unit(theta) + gamma * towards, *validation)

    best = at(gamma * (1 + 1e-9))  # exactly at gamma, a label ties with another tool
    grid = {step: at(step) for step in np.linspace(0, 3, 3001)}
    assert best >= max(grid.values())
    assert best > at(0)
    assert all(count < best for step, count in grid.items() if step < gamma)


def test_m_stays_where_it_is_when_every_first_place_is_right_already():
    theta, every = np.eye(3), np.arange(3)[:, None]
    moved, gamma = run(nudge_m, theta, np.array([[0.6, 0.8, 0]]), np.array([[0]]), theta, every)
    assert gamma == 0
    np.testing.assert_array_equal(moved, theta)


@pytest.mark.parametrize(
    ("nudge", "query", "wanted", "gamma", "first"),
    [
        # Tool 0 scores 0.6 + 0.8 gamma; tool 1 does not move and scores 0.8: a tie at gamma = 0.25.
        (nudge_m, [0.0, 1.0], [0.6, 0.8], 0.25, [1, 0.25]),
        # Tool 0 moves away from the query, for which it can never win.
        (nudge_m, [0.0, -1.0], [0.0, 1.0], 0, [1, 0]),
        # Rotated by an angle a, tool 0 scores cos(53.13 - a degrees), which exceeds 0.8 from
        # a = 16.26, so from gamma = 2 - 2 cos a = 0.08. The required score is slightly lower, so
        # the grid's 0.08 suffices.
        (nudge_n, [0.0, 1.0], [0.6, 0.7999], 0.08, [0.96, 0.28]),
    ],
)
def test_worked_by_hand(nudge, query, wanted, gamma, first):
    """Move tools (1, 0) and (0, 1); tool 0 is the label of ``query`` and of ``wanted``."""
    label = np.array([[0]])
    moved, found = run(nudge, np.eye(2), np.array([query]), label, np.array([wanted]), label)
    np.testing.assert_allclose(found, gamma, rtol=1e-12)
    np.testing.assert_allclose(moved, [first, [0, 1]], rtol=1e-12)


def test_fit_chooses_gamma_on_the_validation_queries():
    """On the training query tool 0 would have to move by 1 instead of 0.25."""
    train, validation = (
        jr.Task.from_arrays(np.eye(2), np.array([query]), np.array([0]))
        for query in ([0.0, 1.0], [0.6, 0.8])
    )
    found = fit(train, Config(form="m"), validation=validation).search(np.eye(2), k=2)
    np.testing.assert_allclose(found.scores, [[1.0, 0.0], [1.0, 0.25]], atol=1e-6)


def test_n_keeps_rows_of_length_one_within_gamma(case):
    theta, queries, labels, *validation = case
    moved, gamma = run(nudge_n, theta, queries, labels, *validation)
    step = moved - unit(theta)
    assert gamma > 0
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), 1, rtol=1e-12)
    assert ((step**2).sum(axis=1) <= gamma * (1 + 1e-12)).all()
    np.testing.assert_allclose(step[[UNUSED, AWAY]], 0, atol=1e-15)
    assert ((step**2).sum(axis=1) > gamma * (1 - 1e-12)).any()  # some rows use all of gamma
    np.testing.assert_allclose(moved[NEAR], unit(queries[-1:])[0], atol=1e-12)  # reaches its query


def test_n_goes_further_than_any_other_unit_row_within_gamma(case):
    theta, queries, labels, *validation = case
    moved, gamma = run(nudge_n, theta, queries, labels, *validation)
    rng = np.random.default_rng(5)
    for e, new, g in zip(unit(theta), moved, pulls(theta, queries, labels), strict=True):
        if e @ g <= 0:
            continue
        ways = unit(rng.normal(size=(2000, D)) + 2 * g / np.linalg.norm(g))
        tries = unit(e + np.sqrt(gamma) * rng.uniform(0.5, 1.2, (2000, 1)) * ways)
        near = tries[((tries - e) ** 2).sum(axis=1) <= gamma]
        assert len(near) > 100
        assert (near @ g).max() <= new @ g + 1e-12


def test_n_takes_the_smallest_gamma_of_the_grid_with_the_most_first_places(case):
    theta, queries, labels, *validation = case
    _, gamma = run(nudge_n, theta, queries, labels, *validation)
    e, g = unit(theta), pulls(theta, queries, labels)
    turns = (g != 0).any(axis=1) & ((e * g).sum(axis=1) >= 0)
    counts = []
    for distance in GRID:
        rows = e.copy()
        angle = np.arccos(1 - distance / 2)  # angle between unit vectors at this distance
        for i in np.flatnonzero(turns):
            to = g[i] / np.linalg.norm(g[i])
            between = np.arccos(np.clip(e[i] @ to, -1, 1))
            share = min(1.0, angle / between)  # spherical interpolation
            rows[i] = np.sin((1 - share) * between) * e[i] + np.sin(share * between) * to
            rows[i] /= np.sin(between)
        counts.append(hits(rows, *validation))
    assert gamma == GRID[int(np.argmax(counts))]
    assert max(counts) > counts[0]


@pytest.mark.parametrize("nudge", [nudge_m, nudge_n])
def test_without_validation_queries_there_is_no_gamma(nudge):
    none = np.zeros((0, 2)), np.zeros((0, 1), int)
    with pytest.raises(ValueError, match="the number of validation queries must be >= 1, got 0"):
        nudge(np.eye(2), np.eye(2), np.zeros((2, 1), int), *none)
