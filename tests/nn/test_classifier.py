"""The classification head of a backbone, computed by hand from the backbone's hidden states."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.nn.classifier import classifier
from jaxret.nn.layers import Compute
from tests.nn.by_hand import exact, gelu, linear
from tests.tiny import BACKBONES, NAMES, weights

RNG = np.random.default_rng(0)
IDS = RNG.integers(4, 24, (3, 9)).astype(np.int32)
MASK = np.arange(9) < np.array([[9], [4], [1]])
SHALLOW = {
    name: each._replace(config=replace(each.config, layers=1)) for name, each in BACKBONES.items()
}
ACTIVATION = {"bert": np.tanh, "mpnet": np.tanh, "deberta": gelu}


@cache  # one program for both pools
def compiled(name):
    return jax.jit(SHALLOW[name].network().apply)


@pytest.mark.parametrize("pool", ["context", "mean"])
@pytest.mark.parametrize("name", NAMES)
def test_logits_are_a_linear_map_of_the_pooled_hidden_states(name, pool):
    network = classifier(SHALLOW[name], 5, pool=pool)
    params = weights(network.shapes())
    hidden = np.asarray(compiled(name)(params["backbone"], IDS, MASK), np.float64)
    exact_params = exact(params)
    if pool == "mean":
        assert "dense" not in params
        pooled = np.stack([row[mask].mean(axis=0) for row, mask in zip(hidden, MASK, strict=True)])
    else:
        pooled = ACTIVATION[name](linear(hidden[:, 0], exact_params["dense"]))
    got = jax.jit(network.apply)(params, IDS, MASK)
    assert got.shape == (3, 5)
    np.testing.assert_allclose(got, linear(pooled, exact_params["head"]), atol=1e-5)


def test_logits_are_float32_and_dropout_needs_a_key():
    backbone = SHALLOW["bert"]
    plain = classifier(backbone, 5, compute=Compute(dtype="bfloat16"))
    dropping = classifier(backbone, 5, compute=Compute(dtype="bfloat16", dropout=0.5))
    assert jax.eval_shape(plain.apply, plain.shapes(), IDS, MASK).dtype == jnp.float32
    one, other = (
        jax.make_jaxpr(network.apply)(plain.shapes(), IDS, MASK) for network in (plain, dropping)
    )
    assert str(one) == str(other)


def test_dropout_reaches_the_pooled_vector():
    """A backbone of zeros has the vector b everywhere, and only the head uses dropout."""
    network = classifier(SHALLOW["bert"], 1, pool="mean", compute=Compute(dropout=0.5))
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), network.shapes())
    params["backbone"]["blocks"]["0"]["mlp_norm"]["bias"] += 1
    params["head"]["kernel"] += 1
    apply = jax.jit(jax.vmap(lambda key: network.apply(params, IDS[:1], MASK[:1], key=key)[0, 0]))
    kept = np.asarray(apply(jax.random.split(jax.random.key(0), 2000))) / 2  # 12 entries, each 1/2
    np.testing.assert_allclose(kept, np.round(kept), atol=1e-5)
    np.testing.assert_allclose(kept.mean(), 6, atol=5 * (3 / 2000) ** 0.5)
    np.testing.assert_allclose(kept.var(), 3, rtol=0.2)
