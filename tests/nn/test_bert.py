"""BERT computed by hand: padding, positions and initial weights."""

import jax
import numpy as np
import pytest
from flax import nnx

from jaxret.nn.bert import Bert, BertConfig
from jaxret.nn.block import run_blocks
from jaxret.nn.functional import functionalize
from jaxret.nn.layers import Compute
from tests.nn.by_hand import assert_equal, block, exact, norm
from tests.nn.config_files import BERT
from tests.tiny import weights

NETWORK = Bert.functions(BertConfig.from_json(BERT))
SHALLOW = Bert.functions(BertConfig.from_json(BERT | {"num_hidden_layers": 1}))
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 50, (4, 7)).astype(np.int32)
MASK = np.arange(7) < np.array([[7], [3], [1], [5]])


def forward_by_hand(params, ids):
    p, epsilon = exact(params), BERT["layer_norm_eps"]
    x = p["word"]["embedding"][ids] + p["position"]["embedding"][: len(ids)]
    x = norm(x + p["token_type"]["embedding"][0], p["norm"], epsilon)
    for layer in range(2):
        x = block(x, p["blocks"][str(layer)], epsilon, lambda head, q, k: q @ k.T / 2)
    return x


def test_hidden_states_equal_a_forward_pass_by_hand_and_ignore_padding():
    params, apply = weights(NETWORK.shapes()), jax.jit(NETWORK.apply)
    got = np.asarray(apply(params, IDS, MASK))
    assert_equal(got, MASK, lambda text: forward_by_hand(params, IDS[text, MASK[text]]))
    other = np.where(MASK, IDS, (IDS + 7) % 50)
    np.testing.assert_array_equal(got[MASK], np.asarray(apply(params, other, MASK))[MASK])


def test_blocks_run_in_the_order_of_their_numbers():
    """Eleven blocks, since the alphabetical order of more than ten is wrong."""

    class Digit(nnx.Module):
        def __init__(self, digit):
            self.digit = digit

        def __call__(self, x, mask, context, key):
            return 12 * x + self.digit

    blocks = nnx.Dict({str(i): Digit(i) for i in range(11)})
    x = np.zeros((1, 1, 1), object)  # exact integers
    got = run_blocks(blocks, x, np.ones((1, 1), bool), Compute())
    assert got[0, 0, 0] == sum(i * 12 ** (10 - i) for i in range(11))


def test_a_text_beyond_the_last_position_is_refused():
    ids = np.ones((1, 10), int)
    with pytest.raises(ValueError, match=r"may have 9 positions \(max_positions\), got 10"):
        jax.eval_shape(SHALLOW.apply, SHALLOW.shapes(), ids, ids)


def test_initial_weights_differ_between_keys_and_matrices():
    @jax.jit
    def init(key):
        params = SHALLOW.init(key)
        query, key = (params["blocks"]["0"][name]["kernel"] for name in ("query", "key"))
        return params["word"]["embedding"], query, key

    (first, query, key), (second, *_) = (
        jax.device_get(init(jax.random.key(seed))) for seed in (0, 1)
    )
    assert np.abs(first - second).max() > 0.01
    assert np.abs(query - key).max() > 0.01
    np.testing.assert_allclose(np.std(first), 0.02, rtol=0.1)


def test_a_network_with_state_besides_parameters_is_refused():
    with pytest.raises(ValueError, match="BatchStat"):
        functionalize(lambda rngs: nnx.BatchNorm(3, rngs=rngs))
