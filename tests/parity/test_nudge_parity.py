"""NUDGE against the authors' package on the same split."""

import jax
import numpy as np
import pytest

from jaxret.methods.nudge import nudge_m, nudge_n

pytest.importorskip("torch")
nudge = pytest.importorskip("nudge")

pytestmark = pytest.mark.parity

I, D = 60, 12


def split(seed):
    """Return training and validation parts; some tools have no query or one that points away."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(I, D))
    usage = theta / np.linalg.norm(theta, axis=1, keepdims=True) + 0.25 * rng.normal(size=(I, D))
    usage[:4] = -theta[:4]

    def asked(count, items):
        sizes = rng.choice([1, 2], count, p=[0.7, 0.3])
        lists = [rng.choice(items, size, replace=False).tolist() for size in sizes]
        means = np.stack([usage[used].mean(axis=0) for used in lists])
        queries = means + 0.3 * rng.normal(size=means.shape)
        return queries / np.linalg.norm(queries, axis=1, keepdims=True), lists

    return theta, *asked(70, np.arange(I - 6)), *asked(80, np.arange(I))


def padded(lists):
    labels = np.full((len(lists), max(map(len, lists))), -1, np.int32)
    for row, used in zip(labels, lists, strict=True):
        row[: len(used)] = used
    return labels


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("ours", "theirs"), [(nudge_m, nudge.NUDGEM), (nudge_n, nudge.NUDGEN)], ids=["M", "N"]
)
def test_embeddings_equal_those_of_the_package(ours, theirs, seed):
    theta, queries, lists, val_queries, val_lists = split(seed)
    expected = theirs("cpu").finetune_embeddings(
        theta,
        {"q_embs": queries, "q_ans_indx": lists},
        {"q_embs": val_queries, "q_ans_indx": val_lists},
    )
    with jax.enable_x64(True):
        arguments = theta, queries, padded(lists), val_queries, padded(val_lists)
        got, gamma = jax.tree.map(np.asarray, jax.jit(ours)(*arguments))
    assert 0 < gamma < 1  # for large gamma the package loses digits: it adds 1e-8 to denominators
    np.testing.assert_allclose(got, expected, atol=1e-6)
    unmoved = theta / np.linalg.norm(theta, axis=1, keepdims=True)
    moves = np.abs(expected - unmoved).max(axis=1) > 1e-6
    assert not moves[-6:].any()
    assert moves[:4].any() == (ours is nudge_m)  # tools whose queries point away
