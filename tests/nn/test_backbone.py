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
from tests.slow import slowly
from tests.tiny import BACKBONES, DECODER, method, weights

EVERY = BACKBONES | {"qwen3": DECODER}
SHALLOW = {
    name: each._replace(config=replace(each.config, layers=1)) for name, each in EVERY.items()
}
RNG = np.random.default_rng(0)
IDS = RNG.integers(4, 24, (3, 9)).astype(np.int32)
MASK = np.arange(9) < np.array([[9], [4], [1]])
PLACES = np.broadcast_to(np.arange(9), (3, 9))
COUNTED = RNG.standard_normal((3, 9, 12)).astype(np.float32) * MASK[..., None]


@pytest.mark.parametrize("name", ["bert", "deberta"])
def test_parameters_are_plain_dicts(name):
    paths, _ = jax.tree.flatten_with_path(SHALLOW[name].network().shapes())
    assert all(isinstance(step.key, str) for path, _ in paths for step in path)


def test_distances_start_with_the_deviation_of_all_weights():
    init = SHALLOW["deberta"].network().init
    fresh = jax.jit(lambda key: init(key)["relative"]["embedding"])(jax.random.key(0))
    np.testing.assert_allclose(np.std(fresh), 0.02, rtol=0.2)


@pytest.mark.parametrize("name", SHALLOW)
def test_a_text_is_its_tokens_embedded_in_order_and_run(name):
    backbone = SHALLOW[name]
    params = weights(backbone.network().shapes())

    def both(b, ids, mask, at):
        return b(ids, mask), b.run(b.embed(ids, at), mask, at)

    called = method(backbone, both)

    def run(*args):
        return jax.device_get(called(params, IDS, MASK, *args))

    whole, parts = run(PLACES)
    np.testing.assert_allclose(parts[MASK], whole[MASK], atol=1e-5)
    _, moved = run(PLACES + 3)
    if "position" in params:  # absolute positions; the others use only distances
        assert np.abs(moved - whole)[MASK].max() > 1e-3
    else:
        np.testing.assert_allclose(moved[MASK], whole[MASK], atol=1e-5)
    _, shuffled = run(PLACES[:, ::-1])
    assert np.abs(shuffled - whole)[0].max() > 1e-3


def test_bert_gives_what_is_injected_a_type_and_a_place():
    backbone = SHALLOW["bert"]
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
    backbone = SHALLOW[name]
    params = weights(backbone.network().shapes())
    vectors = RNG.standard_normal((2, 3, 12)).astype(np.float32)
    inject = method(backbone, lambda b, vectors, at: b.inject(vectors, at))
    np.testing.assert_array_equal(inject(params, vectors, np.array([[1, 2, 3]])), vectors)


def slope(backbone, compute):
    """Return a function (params, key) -> (hidden states, gradient of the sum of those counted)."""
    network = backbone.network(compute)

    def loss(params, key):
        hidden = network.apply(params, IDS, MASK, key=key)
        return (hidden * COUNTED).sum(), hidden

    return jax.jit(lambda *args: jax.grad(loss, has_aux=True)(*args)[::-1])


def distance(a, b):
    """Compute the distance between two trees, relative to the second."""
    both = [np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]) for tree in (a, b)]
    return np.linalg.norm(both[0] - both[1]) / np.linalg.norm(both[1])


@pytest.mark.parametrize("name", slowly(EVERY, {"mpnet", "qwen3"}))
def test_bfloat16_is_near_and_keeps_parameters_and_gradients_in_float32(name):
    shapes = SHALLOW[name].network(Compute(dtype="bfloat16")).shapes()
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}
    wide, short = (
        slope(SHALLOW[name], Compute(dtype=dtype))(weights(shapes), None)
        for dtype in ("float32", "bfloat16")
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(short)} == {jnp.dtype("float32")}
    assert 1e-4 < distance(short[0][MASK], wide[0][MASK]) < 0.02
    assert 1e-4 < distance(short[1], wide[1]) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_blocks_that_are_computed_again_have_the_same_gradients(name):
    one = SHALLOW[name]
    params = weights(one.network().shapes())
    kept = slope(one, Compute(dropout=0.2))
    again = slope(one, Compute(dropout=0.2, remat=True))
    want = kept(params, jax.random.key(0))
    assert distance(again(params, jax.random.key(0)), want) < 1e-5
    assert distance(kept(params, jax.random.key(1)), want) > 0.01
    programs = [str(jax.make_jaxpr(each)(params, jax.random.key(0))) for each in (kept, again)]
    activation = "= logistic " if name == "qwen3" else "= erf "
    assert [program.count(activation) for program in programs] == [1, 2]


@pytest.mark.parametrize("name", EVERY)
def test_without_a_key_dropout_is_no_part_of_the_program_and_hidden_states_are_float32(name):
    backbone = SHALLOW[name]
    shapes = backbone.network().shapes()
    plain, dropping = (
        jax.make_jaxpr(backbone.network(compute).apply)(shapes, IDS, MASK)
        for compute in (Compute(dtype="bfloat16"), Compute(dtype="bfloat16", dropout=0.5))
    )
    assert str(plain) == str(dropping)
    assert plain.out_avals[0].dtype == jnp.float32


@pytest.mark.parametrize("name", EVERY)
def test_a_shallow_backbone_has_the_first_blocks(name):
    backbone = EVERY[name]
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
