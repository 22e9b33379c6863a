"""DeBERTa-V3 computed by hand: relative positions, padding and gradients."""

import math
from dataclasses import replace

import jax
import numpy as np
import pytest

from jaxret.nn.backbone import Backbone
from jaxret.nn.deberta import KEYS, Deberta, DebertaConfig, distance_rows
from jaxret.nn.layers import Compute
from tests.nn import published
from tests.nn.by_hand import assert_equal, block, exact, linear, norm
from tests.nn.config_files import DEBERTA
from tests.tiny import method, weights

CONFIG = DebertaConfig.from_json(DEBERTA)
SHALLOW = Deberta.functions(replace(CONFIG, layers=1))
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 50, (4, 15)).astype(np.int32)
MASK = np.arange(15) < np.array([[15], [3], [1], [9]])
NETWORK = Deberta.functions(CONFIG)
COMPILED = jax.jit(NETWORK.apply)
ORDER = np.broadcast_to(np.arange(15, dtype=np.int32), IDS.shape)


def at_positions(config):
    backbone = Backbone(config, Deberta, KEYS, "deberta.")
    return method(backbone, lambda net, ids, mask, at: net.run(net.embed(ids, at), mask, at))


PLACED = at_positions(CONFIG)


def APPLY(*args):
    return np.asarray(COMPILED(*args))


def POSITIONED(*args):
    return np.asarray(PLACED(*args))


@pytest.fixture(scope="module")
def params():
    return weights(NETWORK.shapes())


def bucket(distance, buckets, farthest):
    """Compute the signed bucket of one distance in float64."""
    middle = buckets // 2
    if abs(distance) <= middle:
        return distance
    share = math.log(abs(distance) / middle) / math.log((farthest - 1) / middle)
    return int(math.copysign(middle + math.ceil(share * (middle - 1)), distance))


def row(distance, buckets, farthest):
    return min(max(bucket(distance, buckets, farthest) + buckets, 0), 2 * buckets - 1)


def forward_by_hand(params, ids):
    p = exact(params)
    x = norm(p["word"]["embedding"][ids], p["norm"], 1e-7)
    r = norm(p["relative"]["embedding"], p["relative_norm"], 1e-7)
    places = range(len(ids))
    rows = np.array([[row(i - j, 6, 12) for j in places] for i in places])
    for layer in "01":
        x = block(x, p["blocks"][layer], 1e-7, disentangled(p["blocks"][layer], r, rows))
    return x


def disentangled(weights, r, rows):
    """Return the logits of contents, of contents and places, and of places and contents."""
    q_r, k_r = (
        linear(r, weights[name])[rows].reshape(*rows.shape, 3, 4) for name in ("query", "key")
    )

    def logits(head, q, k):
        to_place = np.einsum("ic,ijc->ij", q, k_r[:, :, head])
        from_place = np.einsum("jc,ijc->ij", k, q_r[:, :, head])
        return (q @ k.T + to_place + from_place) / 12**0.5

    return logits


def test_hidden_states_equal_a_forward_pass_by_hand_and_ignore_padding(params):
    got = APPLY(params, IDS, MASK)
    assert_equal(got, MASK, lambda text: forward_by_hand(params, IDS[text, MASK[text]]))
    other = np.where(MASK, IDS, (IDS + 7) % 50)
    np.testing.assert_array_equal(got[MASK], APPLY(params, other, MASK)[MASK])


def test_published_distances_fall_into_their_published_buckets():
    rows = distance_rows(published.DEBERTA["base"])
    assert rows.shape == (1025,)
    assert rows.dtype == np.int32
    buckets = {0: 0, 1: 1, 128: 128, 130: 130, 200: 169, 256: 192, 400: 233, 511: 255}
    for distance, number in buckets.items():
        assert rows[512 + distance] == 256 + number
        assert rows[512 - distance] == 256 - number
    assert rows[0] == 0  # distance -512 has bucket -256, the first row
    assert rows[-1] == 511  # distance 512 would have bucket 256, beyond the last row


@pytest.mark.parametrize(("buckets", "farthest"), [(256, 512), (6, 12), (32, 100), (2, 9)])
def test_rows_equal_those_of_a_logarithm_at_a_time(buckets, farthest):
    sizes = {"position_buckets": buckets, "max_relative_positions": farthest}
    config = DebertaConfig.from_json(DEBERTA | sizes)
    want = [row(distance, buckets, farthest) for distance in range(-farthest, farthest + 1)]
    np.testing.assert_array_equal(distance_rows(config), want)
    for beyond in (farthest + 1, 3 * farthest):
        assert row(-beyond, buckets, farthest) == want[0]
        assert row(beyond, buckets, farthest) == want[-1]


def test_explicit_positions_in_order_equal_none_and_only_differences_matter(params):
    want = APPLY(params, IDS, MASK)[MASK]
    shifts = np.array([[0], [7], [-40], [100_000]], np.int32)
    for positions in (ORDER, ORDER + shifts):
        got = POSITIONED(params, IDS, MASK, positions)[MASK]
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_tokens_permuted_with_their_positions_give_permuted_hidden_states(params):
    permutations = np.stack([RNG.permutation(15) for _ in range(4)])
    moved = np.take_along_axis(IDS, permutations, 1), np.take_along_axis(MASK, permutations, 1)
    got = POSITIONED(params, *moved, permutations.astype(np.int32))
    want = np.take_along_axis(APPLY(params, IDS, MASK), permutations[..., None], 1)
    np.testing.assert_allclose(got[moved[1]], want[moved[1]], atol=1e-5)


def test_tokens_may_share_a_position(params):
    shared, swapped = np.minimum(ORDER, 12), np.array([*range(12), 14, 12, 13])
    got = POSITIONED(params, IDS[:, swapped], MASK, shared)[0]  # the text without padding
    np.testing.assert_allclose(got, POSITIONED(params, IDS, MASK, shared)[0, swapped], atol=1e-5)


def test_positions_farther_apart_than_the_sequence_is_long_give_nan(params):
    at_the_end = ORDER + (ORDER == 14)
    assert np.isfinite(POSITIONED(params, IDS, MASK, at_the_end)[0]).all()
    assert np.isnan(POSITIONED(params, IDS, MASK, at_the_end + (ORDER == 14))[0]).all()


def test_gradients_are_the_same_by_explicit_positions(params):
    shallow = params | {"blocks": {"0": params["blocks"]["0"]}}
    placed = at_positions(replace(CONFIG, layers=1))
    counted = RNG.standard_normal((4, 15, 12)).astype(np.float32) * MASK[..., None]

    @jax.jit
    def gradients(params):
        none = jax.grad(lambda p: (SHALLOW.apply(p, IDS, MASK) * counted).sum())(params)
        return none, jax.grad(lambda p: (placed(p, IDS, MASK, ORDER) * counted).sum())(params)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-4), *gradients(shallow)
    )


def test_a_text_may_be_longer_than_the_last_distance(params):
    ids = RNG.integers(0, 50, (1, 40)).astype(np.int32)
    got = APPLY(params, ids, np.ones((1, 40), bool))
    np.testing.assert_allclose(got[0], forward_by_hand(params, ids[0]), atol=1e-5)


def test_dropout_differs_between_keys(params):
    shallow = params | {"blocks": {"0": params["blocks"]["0"]}}
    dropping = jax.jit(Deberta.functions(replace(CONFIG, layers=1), Compute(dropout=0.2)).apply)
    first, again, second = (
        np.asarray(dropping(shallow, IDS, MASK, key=jax.random.key(seed)))[MASK]
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - second).mean() > 0.01
