"""Orthogonal Procrustes alignment against known rotations."""

import jax
import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

from experiments.transfer.align import procrustes

N, D = 60, 12
solve = jax.jit(procrustes)


def rotation(width, rng):
    return np.linalg.qr(rng.normal(size=(width, width)))[0]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_a_known_rotation_and_scale_are_recovered(rng):
    source, known = rng.normal(size=(N, D)), rotation(D, rng)
    with jax.enable_x64(True):
        found, scale = solve(source, 0.3 * source @ known)
    np.testing.assert_allclose(found, known, atol=1e-12)
    assert scale == pytest.approx(0.3, abs=1e-12)


def test_the_rotation_of_noisy_vectors_is_scipys_procrustes_solution(rng):
    source = rng.normal(size=(N, D))
    target = source @ rotation(D, rng) + rng.normal(size=(N, D))
    with jax.enable_x64(True):
        found, scale = map(np.asarray, solve(source, target))
    expected, trace = orthogonal_procrustes(source, target)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert scale == pytest.approx(trace / (source**2).sum(), rel=1e-12)
    np.testing.assert_allclose(found.T @ found, np.eye(D), atol=1e-12)


@pytest.mark.parametrize(("a", "b"), [(5, 8), (8, 5)])
def test_spaces_of_different_widths_are_padded_with_zeros(rng, a, b):
    source, target = rng.normal(size=(N, a)), rng.normal(size=(N, b))
    square = [np.pad(x, ((0, 0), (0, 8 - x.shape[1]))) for x in (source, target)]
    padded, _ = orthogonal_procrustes(*square)
    with jax.enable_x64(True):
        found = np.asarray(solve(source, target)[0])
    np.testing.assert_allclose(found, padded[:a, :b], atol=1e-12)
    small = found @ found.T if a < b else found.T @ found
    np.testing.assert_allclose(small, np.eye(min(a, b)), atol=1e-12)


def test_other_texts_are_refused(rng):
    with pytest.raises(ValueError, match="source has 60 rows and target 59: give the same texts"):
        procrustes(rng.normal(size=(N, D)), rng.normal(size=(N - 1, D)))
