"""Losses against loops in NumPy, numbers worked by hand and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxret.training import losses

is_label, softmax_ce, multi_label_bce = map(
    jax.jit, (losses.is_label, losses.softmax_ce, losses.multi_label_bce)
)
triplet_margin = jax.jit(losses.triplet_margin, static_argnames=("margin", "unit"))
info_nce = jax.jit(losses.info_nce, static_argnames=("temperature", "in_batch"))

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(4, 6)) * 3
LABELS = np.array([[5, -1, -1], [0, 3, -1], [2, 5, 4], [1, -1, -1]])
CANDIDATES = np.array([[5, 1, -1, -1], [4, 3, 2, -1], [0, 1, 3, 4], [-1, -1, -1, -1]])


def log_sigmoid(z):
    return -np.log1p(np.exp(-z))


def bce_by_hand(logits, labels, candidates):
    """Compute the mean over the batch of each row's mean over its candidates."""
    rows = []
    for row, right, tools in zip(logits, labels, candidates, strict=True):
        pairs = [(z, tool) for z, tool in zip(row, tools, strict=True) if tool != -1]
        terms = [-log_sigmoid(z if tool in right else -z) for z, tool in pairs]
        rows.append(sum(terms) / max(len(terms), 1))
    return np.mean(rows)


def test_padding_is_no_label_and_a_label_that_is_named_twice_counts_once():
    got = is_label(np.array([[0, 2, -1]]), np.array([[2, -1], [-1, -1]]))
    np.testing.assert_array_equal(got, [[False, True, False], [False, False, False]])
    twice, once = np.array([[2, 2, 0]]), np.array([[0, 2, -1]])
    for loss in (softmax_ce, multi_label_bce):
        assert loss(LOGITS[:1], twice) == loss(LOGITS[:1], once)


def test_bce_equals_a_loop_and_ignores_the_logits_of_padding():
    want = bce_by_hand(LOGITS, LABELS, np.tile(np.arange(6), (4, 1)))
    np.testing.assert_allclose(multi_label_bce(LOGITS, LABELS), want, rtol=1e-6)
    logits = LOGITS[:, :4]
    want = bce_by_hand(logits, LABELS, CANDIDATES)
    both = jax.jit(jax.value_and_grad(multi_label_bce))
    for padding in (0.0, 1e30, -np.inf):
        padded = np.where(CANDIDATES < 0, padding, logits)
        value, slope = jax.device_get(both(padded, LABELS, CANDIDATES))
        np.testing.assert_allclose(value, want, rtol=1e-6)
        assert np.isfinite(slope).all()
        assert not slope[CANDIDATES < 0].any()


def test_softmax_cross_entropy_sums_over_the_labels():
    p = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    terms = [-np.log(row[right[right >= 0]]) for row, right in zip(p, LABELS, strict=True)]
    want = np.mean([each.sum() for each in terms])
    np.testing.assert_allclose(softmax_ce(LOGITS, LABELS), want, rtol=1e-6)


def test_a_triplet_costs_what_it_falls_short_of_the_margin():
    anchor = np.zeros((3, 2))
    positive = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]])
    negative = np.array([[0.0, 2.0], [0.0, 9.0], [0.0, 0.0]])
    rows = zip(*(x[:, None] for x in (anchor, positive, negative)), strict=True)
    got = [triplet_margin(*row, margin=2.0) for row in rows]
    np.testing.assert_allclose(got, [5 - 2 + 2, 0, 2], atol=1e-5)


def test_unit_triplets_do_not_see_lengths():
    a, p, n = RNG.normal(size=(3, 5, 7))
    got = triplet_margin(2 * a, 30 * p, 0.4 * n, unit=True, margin=0.7)
    np.testing.assert_allclose(got, triplet_margin(a, p, n, unit=True, margin=0.7), rtol=1e-5)
    a, p, n = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, p, n))
    np.testing.assert_allclose(got, triplet_margin(a, p, n, margin=0.7), rtol=1e-5)


NEAR = {
    "queries": RNG.normal(size=(3, 4)),
    "documents": RNG.normal(size=(3, 4)),
    "labels": np.array([[7, 2], [2, -1], [5, -1]]),
    "document_labels": np.array([7, 2, 5]),
    "negatives": RNG.normal(size=(3, 2, 4)),
    "negative_labels": np.array([[5, 9], [7, -1], [8, 2]]),
}
NONE = (np.zeros((3, 0, 4)), np.zeros((3, 0), int))  # no negatives


def info_nce_by_hand(rivals, temperature):
    """Compute InfoNCE; ``rivals[b]`` are the negative vectors of query b."""
    rows = []
    for q, document, others in zip(NEAR["queries"], NEAR["documents"], rivals, strict=True):
        scores = np.array([q @ document, *(q @ other for other in others)]) / temperature
        rows.append(np.log(np.exp(scores).sum()) - scores[0])
    return np.mean(rows)


def test_info_nce_with_given_negatives_leaves_padding_and_own_labels_out():
    n = NEAR["negatives"]
    own = NEAR | {"negative_labels": np.array([[5, 2], [7, -1], [8, 2]])}  # row 0: 2 is its label
    want = info_nce_by_hand([[n[0, 0]], [n[1, 0]], [n[2, 0], n[2, 1]]], 0.5)
    np.testing.assert_allclose(info_nce(**own, temperature=0.5, in_batch=False), want, rtol=1e-6)


def test_info_nce_in_the_batch_takes_all_but_documents_of_own_labels():
    d, n = NEAR["documents"], NEAR["negatives"]
    want = info_nce_by_hand(
        [
            [d[2], n[0, 0], n[0, 1], n[2, 0]],  # labels 7 and 2: without d[1], n[1, 0] and n[2, 1]
            [d[0], d[2], n[0, 0], n[0, 1], n[1, 0], n[2, 0]],  # label 2: without n[2, 1]
            [d[0], d[1], n[0, 1], n[1, 0], n[2, 0], n[2, 1]],  # label 5: without n[0, 0]
        ],
        0.5,
    )
    np.testing.assert_allclose(info_nce(**NEAR, temperature=0.5), want, rtol=1e-6)


def test_info_nce_identifies_documents_by_tool_if_labels_are_unknown():
    q, d = NEAR["queries"], NEAR["documents"]
    unknown, tools = np.full((3, 1), -1), np.array([7, 7, 5])  # d[0] and d[1] have the same tool
    got = info_nce(q, d, unknown, tools, *NONE, temperature=0.5)
    want = info_nce_by_hand([[d[2]], [d[2]], [d[0], d[1]]], 0.5)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    same = (np.array([[3], [3], [3]]), np.array([3, 3, 3]))  # one tool: nothing to separate
    np.testing.assert_allclose(info_nce(q, d, *same, *NONE, temperature=0.1), 0, atol=1e-6)


A, B, C = RNG.normal(size=(3, 4, 3))
MORE = {"a": A, "b": B, "n": RNG.normal(size=(4, 2, 3))}
TOOLS, GIVEN = np.array([5, 0, 4, 1]), np.array([[0, 1], [2, 4], [3, 1], [5, -1]])


def contrast(x, **settings):
    given = (x["a"], x["b"], LABELS, TOOLS, x["n"], GIVEN)
    return losses.info_nce(*given, temperature=0.3, **settings)


#: Each loss as a function of its real-valued arguments, and such arguments.
EACH = {
    "bce": (lambda z: losses.multi_label_bce(z, LABELS), LOGITS),
    "bce_candidates": (lambda z: losses.multi_label_bce(z, LABELS, CANDIDATES), LOGITS[:, :4]),
    "softmax": (lambda z: losses.softmax_ce(z, LABELS), LOGITS),
    "triplet": (lambda x: losses.triplet_margin(*x, margin=3.0), [A, B, C]),
    "triplet_unit": (lambda x: losses.triplet_margin(*x, margin=3.0, unit=True), [A, B, C]),
    "info_nce": (contrast, MORE),
    "info_nce_given": (lambda x: contrast(x, in_batch=False), MORE),
}
INPUTS = {name: x for name, (_, x) in EACH.items()}


@jax.jit  # one program for all losses
def every(inputs):
    return {name: loss(inputs[name]) for name, (loss, _) in EACH.items()}


def test_gradients_equal_finite_differences():
    with jax.enable_x64(True):
        check_grads(every, (INPUTS,), order=1, modes=["rev"], atol=1e-6, rtol=1e-6)


def test_extreme_and_coinciding_inputs_have_finite_values_and_gradients():
    both = jax.jit(jax.value_and_grad(lambda inputs: sum(every(inputs).values())))
    for change in (lambda v: 1e4 * v, np.zeros_like, np.ones_like):
        value, slopes = both(jax.tree.map(change, INPUTS))
        assert np.isfinite(value)
        for name, slope in slopes.items():
            assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope)), name


def test_bfloat16_is_computed_in_float32():
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), INPUTS)
    exact = every(jax.tree.map(lambda leaf: leaf.astype(np.float32), half))
    for name, got in every(half).items():
        assert got.dtype == jnp.float32
        np.testing.assert_array_equal(got, exact[name], err_msg=name)


def test_settings_that_make_no_loss_are_refused():
    q, d = NEAR["queries"], NEAR["documents"]
    with pytest.raises(ValueError, match="temperature must be > 0, got 0"):
        info_nce(**NEAR, temperature=0)
    labels = (NEAR["labels"], NEAR["document_labels"])
    with pytest.raises(ValueError, match="negatives must be >= 1 per row without in_batch, got 0"):
        info_nce(q, d, *labels, *NONE, temperature=1, in_batch=False)
    with pytest.raises(ValueError, match="margin must be >= 0, got -1"):
        triplet_margin(q, d, d, margin=-1)
