"""MPNet computed by hand: relative distances, padding and positions."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.nn.backbone import Backbone
from jaxret.nn.mpnet import KEYS, MPNet, MPNetConfig, buckets
from tests.nn.by_hand import assert_equal, block, exact, norm
from tests.nn.config_files import MPNET
from tests.tiny import method, weights

CONFIG = MPNetConfig.from_json(MPNET)
NETWORK = MPNet.functions(CONFIG)
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 50, (4, 25)).astype(np.int32)
MASK = np.arange(25) < np.array([[25], [3], [1], [18]])


def bucket(distance):
    """Compute T5's bucket: 16 per direction, 8 of which are exact and 8 logarithmic."""
    size = abs(distance)
    if size >= 8:
        size = min(8 + math.floor(math.log(size / 8) / math.log(16) * 8), 15)
    return size + 16 * (distance > 0)


def forward_by_hand(params, ids, places):
    p = exact(params)
    x = norm(p["word"]["embedding"][ids] + p["position"]["embedding"][2 + places], p["norm"], 1e-5)
    bias = p["relative"]["embedding"][[[bucket(j - i) for j in places] for i in places]]
    for layer in "01":
        x = block(x, p["blocks"][layer], 1e-5, lambda head, q, k: q @ k.T / 2 + bias[..., head])
    return x


@pytest.fixture(scope="module")
def params():
    return weights(NETWORK.shapes())


def test_hidden_states_equal_a_forward_pass_by_hand_and_ignore_padding(params):
    def want(text):
        return forward_by_hand(params, IDS[text, MASK[text]], np.arange(MASK[text].sum()))

    assert_equal(jax.jit(NETWORK.apply)(params, IDS, MASK), MASK, want)


def test_explicit_positions_place_the_tokens(params):
    backbone = Backbone(CONFIG, MPNet, KEYS, "mpnet.")
    run = method(backbone, lambda net, ids, mask, at: net.run(net.embed(ids, at), mask, at))
    places = RNG.permuted(np.tile(np.arange(32), (4, 1)), axis=1)[:, :25]

    def want(text):
        return forward_by_hand(params, IDS[text, MASK[text]], places[text, MASK[text]])

    assert_equal(run(params, IDS, MASK, places), MASK, want)


def test_distances_fall_into_their_published_buckets():
    rows = buckets(200)
    assert rows.shape == (401,)
    assert rows.dtype == np.int32
    sizes = {0: 0, 7: 7, 8: 8, 11: 8, 12: 9, 16: 10, 23: 11, 32: 12, 64: 14, 91: 15, 200: 15}
    for size, number in sizes.items():
        assert rows[200 - size] == number
        assert rows[200 + size] == number + 16 * (size > 0)


def test_a_text_beyond_the_last_position_is_refused():
    ids = jnp.zeros((1, 33), jnp.int32)
    with pytest.raises(ValueError, match=r"may have 32 positions .*, got 33"):
        jax.eval_shape(NETWORK.apply, NETWORK.shapes(), ids, ids > -1)
