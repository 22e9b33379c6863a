"""BERT, MPNet, DeBERTa and Qwen3 through their common interface."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.nn.backbone import read_backbone, shallow
from jaxret.nn.layers import Compute
from tests.nn.by_hand import exact, norm
from tests.tiny import BACKBONES, DECODER, method, weights

EVERY = BACKBONES | {"qwen3": DECODER}
RNG = np.random.default_rng(0)
IDS = RNG.integers(4, 24, (3, 9)).astype(np.int32)
MASK = np.arange(9) < np.array([[9], [4], [1]])
PLACES = np.broadcast_to(np.arange(9), (3, 9))
COUNTED = RNG.standard_normal((3, 9, 12)).astype(np.float32) * MASK[..., None]


@pytest.fixture(params=EVERY)
def backbone(request):
    return EVERY[request.param]


@pytest.mark.parametrize("name", ["bert", "deberta"])
def test_parameters_are_plain_dicts_and_the_shapes_are_those_of_init(name):
    backbone = EVERY[name]
    network = backbone._replace(config=replace(backbone.config, layers=1)).network()
    fresh = jax.jit(network.init)(jax.random.key(0))
    described = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), fresh)
    assert described == network.shapes()
    paths, _ = jax.tree.flatten_with_path(fresh)
    assert all(isinstance(step.key, str) for path, _ in paths for step in path)
    if name == "deberta":
        np.testing.assert_allclose(np.std(fresh["relative"]["embedding"]), 0.02, rtol=0.2)


def test_a_text_is_its_tokens_embedded_in_order_and_run(backbone):
    params = weights(backbone.network().shapes())
    whole = jax.jit(backbone.network().apply)(params, IDS, MASK)
    run = method(backbone, lambda b, ids, mask, at: b.run(b.embed(ids, at), mask, at))
    np.testing.assert_allclose(run(params, IDS, MASK, PLACES)[MASK], whole[MASK], atol=1e-5)
    moved = run(params, IDS, MASK, PLACES + 3)
    if "position" in params:  # absolute positions; the others use only distances
        assert np.abs(moved - whole)[MASK].max() > 1e-3
    else:
        np.testing.assert_allclose(moved[MASK], whole[MASK], atol=1e-5)
    shuffled = run(params, IDS, MASK, PLACES[:, ::-1])
    assert np.abs(shuffled - whole)[0].max() > 1e-3


def test_bert_gives_what_is_injected_a_type_and_a_place():
    backbone = BACKBONES["bert"]
    params = weights(backbone.network().shapes())
    vectors = RNG.standard_normal((2, 3, 12)).astype(np.float32)
    at = np.array([[4, 4, 0], [7, 1, 2]])
    p = exact(params)

    def by_hand(x):
        return norm(x + p["token_type"]["embedding"][0], p["norm"], epsilon=0)

    inject = method(backbone, lambda b, vectors, at: b.inject(vectors, at))
    placed = by_hand(vectors + p["position"]["embedding"][at])
    np.testing.assert_allclose(inject(params, vectors, at), placed, atol=1e-5)


@pytest.mark.parametrize("name", ["deberta", "qwen3"])
def test_backbones_without_position_embeddings_inject_vectors_unchanged(name):
    backbone = EVERY[name]
    params = weights(backbone.network().shapes())
    vectors = RNG.standard_normal((2, 3, 12)).astype(np.float32)
    inject = method(backbone, lambda b, vectors, at: b.inject(vectors, at))
    np.testing.assert_array_equal(inject(params, vectors, np.array([[1, 2, 3]])), vectors)


def slope(backbone, compute):
    """Return a function (params, key) -> (sum of the unmasked hidden states, gradient)."""
    network = backbone.network(compute)

    def loss(params, key):
        return (network.apply(params, IDS, MASK, key=key) * COUNTED).sum()

    return jax.jit(jax.value_and_grad(loss))


def distance(a, b):
    """Compute the distance between two trees, relative to the second."""
    both = [np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]) for tree in (a, b)]
    return np.linalg.norm(both[0] - both[1]) / np.linalg.norm(both[1])


def test_bfloat16_is_near_and_keeps_parameters_and_gradients_in_float32(backbone):
    shapes = backbone.network(Compute(dtype="bfloat16")).shapes()
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}
    one, params = shallow(backbone, weights(shapes), 1)  # fewer blocks compile faster
    wide = slope(one, Compute())(params, None)
    short = slope(one, Compute(dtype="bfloat16"))(params, None)
    assert {leaf.dtype for leaf in jax.tree.leaves(short)} == {jnp.dtype("float32")}
    assert 1e-4 < distance(short[1], wide[1]) < 0.1


@pytest.mark.slow
def test_blocks_that_are_computed_again_have_the_same_gradients(backbone):
    one, params = shallow(backbone, weights(backbone.network().shapes()), 1)
    kept = slope(one, Compute(dropout=0.2))
    again = slope(one, Compute(dropout=0.2, remat=True))
    want = kept(params, jax.random.key(0))
    assert distance(again(params, jax.random.key(0)), want) < 1e-5
    assert distance(kept(params, jax.random.key(1)), want) > 0.01
    programs = [str(jax.make_jaxpr(each)(params, jax.random.key(0))) for each in (kept, again)]
    activation = "= logistic " if backbone is DECODER else "= erf "
    assert [program.count(activation) for program in programs] == [1, 2]


def test_without_a_key_dropout_is_no_part_of_the_program(backbone):
    shapes = backbone.network().shapes()
    plain, dropping = (
        jax.make_jaxpr(backbone.network(Compute(dropout=rate)).apply)(shapes, IDS, MASK)
        for rate in (0.0, 0.5)
    )
    assert str(plain) == str(dropping)


def test_a_shallow_backbone_has_the_first_blocks(backbone):
    params = weights(backbone.network().shapes())
    smaller, kept = shallow(backbone, params, 1)
    assert smaller.config == replace(backbone.config, layers=1)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), kept)
    assert shapes == smaller.network().shapes()
    np.testing.assert_array_equal(
        kept["blocks"]["0"]["query"]["kernel"], params["blocks"]["0"]["query"]["kernel"]
    )
    assert set(params["blocks"]) == {"0", "1"}
    for layers in (0, 3):
        with pytest.raises(ValueError, match=rf"layers must be in 1 \.\. 2, got {layers}"):
            shallow(backbone, params, layers)


def test_an_unknown_architecture_is_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "roberta"}))
    with pytest.raises(ValueError, match=r"model_type must be one of .*'qwen3'\], got 'rob"):
        read_backbone(path)
