"""ToolRefiner's network: the inputs on which its logits depend, and the irrelevant ones."""

from dataclasses import replace
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.nn.layers import Compute
from jaxret.nn.refiner import STARTS, Places, positions, refiner
from tests.tiny import BACKBONES, NAMES, method, weights

PLACES = get_args(Places)
#: One block is enough for what is before and after the blocks, and compiles faster.
SHALLOW = {
    name: each._replace(config=replace(each.config, layers=1)) for name, each in BACKBONES.items()
}
RNG = np.random.default_rng(0)
LENGTHS = (7, 12, 16)
TEXTS = [RNG.integers(4, 24, length) for length in LENGTHS]
TOOLS = RNG.standard_normal((3, 6, 5)).astype(np.float32)
THERE = np.arange(6) < np.array([[6], [4], [1]])


def padded(length):
    ids, mask = np.zeros((3, length), np.int32), np.zeros((3, length), bool)
    for row, text in enumerate(TEXTS):
        ids[row, : len(text)], mask[row, : len(text)] = text, True
    return ids, mask


@pytest.fixture(scope="module", params=NAMES)
def networks(request):
    """Return a backbone, parameters, and the compiled network for each kind of positions."""
    backbone = SHALLOW[request.param]
    made = {places: refiner(backbone, 5, places=places) for places in PLACES}
    params = weights(made["shared"].shapes())
    return backbone, params, {places: called(network) for places, network in made.items()}


def called(network):
    apply = jax.jit(network.apply)
    return lambda *args: np.asarray(apply(*args))


@pytest.mark.parametrize("places", PLACES)
def test_only_the_reference_sees_how_the_batch_was_padded(networks, places):
    """Texts are padded to another length, and candidates that are not there are added."""
    params, apply = networks[1], networks[2][places]
    short = apply(params, *padded(16), TOOLS, THERE)
    assert short.shape == (3, 6)
    assert short.dtype == jnp.float32
    rubbish = np.where(THERE[..., None], TOOLS, 1e3 * RNG.standard_normal(TOOLS.shape))
    more = np.concatenate([rubbish, 7 * TOOLS[:, :4]], axis=1).astype(np.float32)
    there = np.pad(THERE, ((0, 0), (0, 4)))
    long = apply(params, *padded(32), more, there)[:, :6]
    if places == "reference":
        assert np.abs(short - long)[THERE].max() > 1e-3
    else:
        np.testing.assert_allclose(short[THERE], long[THERE], atol=1e-5)


@pytest.mark.parametrize("places", PLACES)
def test_only_shared_places_hide_the_order_of_the_candidates(networks, places):
    params, apply = networks[1], networks[2][places]
    order, there = np.array([3, 0, 5, 1, 4, 2]), np.ones((3, 6), bool)
    straight = apply(params, *padded(16), TOOLS, there)[:, order]
    permuted = apply(params, *padded(16), TOOLS[:, order], there)
    if places == "shared":
        np.testing.assert_allclose(permuted, straight, atol=1e-5)
    else:
        assert np.abs(permuted - straight).max(axis=1).min() > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_candidates_that_are_not_there_are_not_in_the_gradient(name):
    network = refiner(SHALLOW[name], 5)
    params, counted = weights(network.shapes()), RNG.standard_normal((3, 6)) * THERE

    @jax.jit
    @jax.grad
    def gradient(both):
        params, tools = both
        return (network.apply(params, *padded(16), tools, THERE) * counted).sum()

    rubbish = np.where(THERE[..., None], TOOLS, 1e3).astype(np.float32)
    pair = gradient((params, TOOLS)), gradient((params, rubbish))
    (ours, tools), (theirs, _) = jax.device_get(pair)
    assert np.abs(tools[THERE]).min(axis=0).max() > 0
    np.testing.assert_array_equal(tools[~THERE], 0)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5)


def test_a_query_is_its_tokens_then_its_tools_through_the_blocks(networks):
    """Assemble the sequence by hand for one query without padding."""
    backbone, params, apply = networks

    def call(backbone, ids, projected, at):
        words = jnp.arange(7)[None]
        x = jnp.concatenate([backbone.embed(ids, words), backbone.inject(projected, at)], axis=1)
        return backbone.run(x, jnp.ones((1, 10), bool), jnp.concatenate([words, at], axis=1))

    projection, score = jax.device_get((params["projection"], params["score"]))
    projected = TOOLS[:1, :3] @ projection["kernel"] + projection["bias"]
    run, three = method(backbone, call), np.tile(np.arange(6) < 3, (3, 1))
    for places, at in {"shared": [7, 7, 7], "rank": [7, 8, 9]}.items():
        hidden = run(params["backbone"], TEXTS[0][None], projected, np.array([at]))
        want = (np.asarray(hidden)[0, 7:] @ score["kernel"] + score["bias"])[:, 0]
        got = apply[places](params, *padded(16), TOOLS, three)
        np.testing.assert_allclose(got[0, :3], want, atol=1e-5)


def test_both_initial_projections_scale_vectors_equally_and_identity_keeps_directions():
    sample = jax.jit(
        lambda key: {name: STARTS[name](key, (200, 64), jnp.float32) for name in STARTS}
    )
    kernels = jax.device_get(sample(jax.random.key(0)))
    for kernel in kernels.values():
        lengths = np.linalg.norm(kernel[:64], axis=1)  # lengths of mapped unit vectors
        np.testing.assert_allclose(lengths, 0.2 * 64**0.5, rtol=0.5)
    turned = kernels["identity"] / kernels["identity"][0, 0]
    np.testing.assert_array_equal(turned, np.eye(200, 64))
    assert np.count_nonzero(kernels["normal"]) == 200 * 64


@pytest.mark.parametrize(
    ("places", "words", "tools"),
    [
        ("shared", [[0, 1, 2, 3]] * 2, [[2, 2, 2], [4, 4, 4]]),
        ("rank", [[0, 1, 2, 3]] * 2, [[2, 3, 4], [4, 5, 6]]),
        # closing token, then tools, after padding
        ("reference", [[0, 3, 2, 3], [0, 1, 2, 3]], [[4, 5, 6]] * 2),
    ],
)
def test_positions_are_those_by_hand(places, words, tools):
    mask = np.arange(4) < np.array([[2], [4]])
    found = jax.jit(positions, static_argnums=(1, 2))(mask, 3, places)
    np.testing.assert_array_equal(found[0], words)
    np.testing.assert_array_equal(found[1], tools)


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_keeps_float32_parameters_and_logits(name):
    network = refiner(SHALLOW[name], 5, compute=Compute(dtype="bfloat16", remat=True))
    assert {leaf.dtype for leaf in jax.tree.leaves(network.shapes())} == {jnp.dtype("float32")}
    got = jax.eval_shape(network.apply, network.shapes(), *padded(16), TOOLS, THERE)
    assert (got.shape, got.dtype) == ((3, 6), jnp.float32)


def test_more_candidates_than_positions_are_refused():
    network = refiner(SHALLOW["bert"], 5)
    tools = np.ones((3, 36, 5), np.float32)
    with pytest.raises(ValueError, match=r"may have 48 positions \(max_positions\), got 52"):
        jax.eval_shape(network.apply, network.shapes(), *padded(16), tools, tools[..., 0] > 0)
