"""The layers of the networks, each against an independent oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.nn.functional import functionalize
from jaxret.nn.layers import Compute, attend, cls_pool, dropout, gelu, linear, mean_pool, norm

MASK = np.arange(7) < np.array([[7], [3], [1], [5]])
RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_attention_and_gelu_equal_those_of_jax():
    @jax.jit
    def both(q, k, v):
        scores = jnp.einsum("bqhe,bkhe->bhqk", q, k) / 2
        mixed = attend(scores, v.swapaxes(1, 2), MASK).swapaxes(1, 2)
        theirs = jax.nn.dot_product_attention(q, k, v, mask=MASK[:, None, None, :])
        return (mixed, gelu(q)), (theirs, jax.nn.gelu(q, approximate=False))

    for ours, theirs in zip(*both(*normal(3, 4, 7, 3, 4)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_attention_survives_scores_beyond_the_range_of_exp():
    v = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 4)
    scores = np.float32([[[[1e4, 1e4], [-1e4, 1e4]]]])
    got = np.asarray(jax.jit(attend)(scores, v, np.ones((1, 2), bool)))
    np.testing.assert_allclose(got[0, 0], [v[0, 0].mean(axis=0), v[0, 0, 1]], rtol=1e-6)


def test_pooling_sees_the_tokens_that_are_there():
    hidden = np.float32([[[1, 10], [3, 30], [99, 99]]])
    pools = jax.jit(lambda *args: (mean_pool(*args), cls_pool(*args)))
    mean, first = pools(hidden, np.array([[True, True, False]]))
    np.testing.assert_allclose(mean, [[2.0, 20.0]])
    np.testing.assert_allclose(first, [[1.0, 10.0]])


def test_dropout_drops_its_rate_if_there_is_a_key_and_scales_the_rest():
    ones = np.ones(100_000, np.float32)
    x = np.asarray(jax.jit(dropout, static_argnums=1)(ones, 0.3, jax.random.key(0)))
    np.testing.assert_allclose(np.unique(x), [0, 1 / 0.7], rtol=1e-6)
    np.testing.assert_allclose((x == 0).mean(), 0.3, atol=4 * (0.3 * 0.7 / 1e5) ** 0.5)
    assert dropout(ones, 0.5, None) is ones
    assert dropout(ones, 0.0, jax.random.key(0)) is ones


def test_attention_with_dropout_is_right_on_average():
    scores, v = normal(1, 1, 2, 5), np.eye(5, dtype=np.float32)[None, None]
    mask, n = np.array([[True, True, True, True, False]]), 4096
    draw = jax.vmap(lambda key: attend(scores, v, mask, 0.4, key))
    sample = jax.jit(lambda key: draw(jax.random.split(key, n)))
    draws = np.asarray(sample(jax.random.key(3)), np.float64)
    weights = np.exp(scores.astype(np.float64)) * mask[:, None, None]
    weights /= weights.sum(axis=-1, keepdims=True)
    error = 5 * draws.std(axis=0) / n**0.5
    assert (np.abs(draws.mean(axis=0) - weights) <= error + 1e-7).all()
    assert (error[..., :4] > 0).all()  # each weight is dropped sometimes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_linear_map_has_float32_parameters_for_any_compute_dtype(dtype):
    network = functionalize(lambda rngs: linear(64, 256, Compute(dtype=dtype), rngs))
    params = jax.jit(network.init)(jax.random.key(4))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    np.testing.assert_allclose(np.std(params["kernel"]), 0.02, rtol=0.05)
    x = normal(3, 64)
    got = jax.jit(network.apply)(params, x)
    assert got.dtype == dtype
    want = np.asarray(x, np.float64) @ np.asarray(params["kernel"], np.float64)
    got = np.asarray(got, np.float64)
    np.testing.assert_allclose(got, want, atol=1e-6 if dtype == "float32" else 0.01)


def test_a_norm_is_exact_where_the_mean_is_large():
    network = functionalize(lambda rngs: norm(6, 1e-12, rngs))
    x = 3e3 + np.random.default_rng(0).standard_normal((2, 6))
    x = x.astype(np.float32)
    got = jax.jit(network.apply)(jax.jit(network.init)(jax.random.key(6)), x)
    centred = x.astype(np.float64) - x.mean(axis=1, dtype=np.float64, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True))
    np.testing.assert_allclose(got, want, atol=1e-3)  # E x^2 - (E x)^2 would be off by 1


def test_unknown_precisions_and_rates_are_refused():
    with pytest.raises(ValueError, match="dtype must be float32 or bfloat16, got float16"):
        Compute(dtype="float16")
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\), got 1.0"):
        Compute(dropout=1.0)
