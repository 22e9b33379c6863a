"""LoRA on BERT: identity, rank, gradients, several adapters at once, and dropout."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxret.nn import lora
from jaxret.nn.bert import Bert, BertConfig
from jaxret.nn.functional import functionalize
from jaxret.nn.layers import Compute, linear
from tests.tiny import weights

CONFIG = BertConfig.from_json(
    {
        "vocab_size": 30,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 9,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    }
)
NETWORK = Bert.functions(CONFIG)
ATTENTION = r"blocks/\d+/(query|value)/kernel"
ADAPTED = {f"blocks/0/{name}/kernel" for name in ("query", "value")}
IDS, MASK = np.arange(10).reshape(2, 5), np.ones((2, 5), bool)


@pytest.fixture(scope="module")
def params():
    return weights(NETWORK.shapes())


def fresh(params, pattern, rank):
    return jax.jit(lambda: lora.init(jax.random.key(1), params, pattern, rank=rank))()


def shapes(params, pattern, rank):
    return jax.eval_shape(lambda: lora.init(jax.random.key(0), params, pattern, rank=rank))


@pytest.fixture(scope="module")
def trained(params):
    """Make an adapter whose two factors are both random."""
    return weights(shapes(params, ATTENTION, rank=3), scale=1.0)


def by_path(tree):
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf)
        for path, leaf in jax.tree.leaves_with_path(tree)
    }


def test_a_fresh_adapter_changes_no_bit(params):
    adapter = fresh(params, ATTENTION, rank=3)
    assert set(adapter) == ADAPTED
    assert {leaf["a"].shape for leaf in adapter.values()} == {(8, 3)}
    assert {leaf["b"].shape for leaf in adapter.values()} == {(3, 8)}
    merged = by_path(jax.jit(lambda p, a: lora.merge(p, a, alpha=16))(params, adapter))
    for path, leaf in by_path(params).items():
        np.testing.assert_array_equal(merged[path], leaf)


def test_the_first_factor_has_the_variance_of_its_inputs():
    params = {
        name: np.zeros((n, 5), "float32") for name, n in {"wide": 4000, "narrow": 250}.items()
    }
    adapter = jax.device_get(fresh(params, ".*", rank=16))
    for path, leaf in params.items():
        np.testing.assert_allclose(adapter[path]["a"].std(), leaf.shape[0] ** -0.5, rtol=0.05)
    rows = {path: np.asarray(pair["a"][:250]).ravel() for path, pair in adapter.items()}
    assert abs(np.corrcoef(rows["wide"], rows["narrow"])[0, 1]) < 0.1  # keys differ


def test_a_merge_adds_the_scaled_product_to_the_chosen_matrices_alone(params, trained):
    merged = by_path(jax.jit(lambda p, a: lora.merge(p, a, alpha=12))(params, trained))
    for path, leaf in by_path(params).items():
        if path in ADAPTED:
            a, b = (np.asarray(trained[path][side], np.float64) for side in "ab")
            np.testing.assert_allclose(merged[path], leaf + 12 / 3 * a @ b, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(merged[path], leaf)


def test_a_gradient_is_the_adapters_and_learns_without_touching_the_parameters(params):
    target = np.random.default_rng(0).normal(size=(2, 5, 8)).astype(np.float32)

    @jax.jit
    @jax.value_and_grad
    def loss(adapter):
        hidden = NETWORK.apply(lora.merge(params, adapter, alpha=16), IDS, MASK)
        return ((hidden - target) ** 2).mean()

    adapter = jax.device_get(fresh(params, ATTENTION, rank=2))
    before, slope = jax.device_get(loss(adapter))
    assert jax.tree.structure(slope) == jax.tree.structure(adapter)
    assert not any(pair["a"].any() for pair in slope.values())  # b is still zero
    assert all(pair["b"].any() for pair in slope.values())
    moved = jax.tree.map(lambda w, g: w - 0.1 * g, adapter, slope)
    assert loss(moved)[0] < before


def test_adapters_map_over_one_set_of_parameters(params, trained):
    several = [trained, jax.tree.map(lambda leaf: -2 * leaf, trained)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *several)

    @jax.jit
    def hidden(adapter):
        return NETWORK.apply(lora.merge(params, adapter, alpha=2), IDS, MASK)

    got = np.asarray(jax.jit(jax.vmap(hidden))(stacked))
    for row, adapter in zip(got, several, strict=True):
        np.testing.assert_allclose(row, hidden(adapter), atol=1e-5)
    assert np.abs(got[0] - got[1]).max() > 0.1


def test_any_tree_and_its_dtypes_are_kept():
    shape = jax.ShapeDtypeStruct
    params = [{"w": shape((4, 3), jnp.bfloat16)}, (shape((3, 3), "float32"), shape((3,), "int8"))]
    adapter = shapes(params, r"0/w|1/0", rank=1)
    assert {path: pair["a"].dtype for path, pair in adapter.items()} == {
        "0/w": jnp.bfloat16,
        "1/0": jnp.float32,
    }
    assert jax.eval_shape(partial(lora.merge, alpha=1), params, adapter) == params


@pytest.mark.parametrize(
    ("pattern", "rank", "message"),
    [
        ("kernel", 2, r"no parameter's path matches 'kernel'; there are .*norm"),
        (".*/query/.*", 2, r"only matrices, .*'blocks/0/query/bias': \(8,\)"),
        (ATTENTION, 0, "rank must be >= 1, got 0"),
    ],
)
def test_patterns_and_ranks_that_make_no_adapter_are_refused(params, pattern, rank, message):
    with pytest.raises(ValueError, match=message):
        lora.init(jax.random.key(0), params, pattern, rank=rank)


def one_layer():
    """Compute x W, as a network whose parameters are {'layer': {'kernel': W}}."""

    class OneLayer(nnx.Module):
        def __init__(self, rngs):
            self.layer = linear(6, 6, Compute(), rngs, bias=False)

        def __call__(self, x, key=None):
            return self.layer(x)

    return functionalize(OneLayer)


def test_a_branch_equals_the_merged_matrix(params, trained):
    beside = jax.jit(lora.branched(NETWORK, alpha=16, rate=0.5))
    merged = jax.jit(lambda p, a: NETWORK.apply(lora.merge(p, a, alpha=16), IDS, MASK))
    want = merged(params, trained)
    np.testing.assert_allclose(beside((trained, params), IDS, MASK), want, atol=1e-5)
    dropped = beside((trained, params), IDS, MASK, key=jax.random.key(0))
    assert np.abs(dropped - want).max() > 0.1


def test_every_entry_is_dropped_independently():
    rate, x = 0.25, np.random.default_rng(0).normal(size=(500, 6)).astype(np.float32)
    eye = np.eye(6, dtype=np.float32)
    adapter = {"layer/kernel": {"a": eye, "b": eye}}  # the branch is the identity
    params = {"layer": {"kernel": np.full((6, 6), 0.5, np.float32)}}
    apply = lora.branched(one_layer(), alpha=12, rate=rate)
    got = np.asarray(jax.jit(apply)((adapter, params), x, key=jax.random.key(3)))
    got = got - 0.5 * x.sum(axis=1, keepdims=True)
    kept = np.abs(got) > 1e-4
    np.testing.assert_allclose(got, np.where(kept, 12 / 6 * x / (1 - rate), 0), atol=1e-5)
    np.testing.assert_allclose(kept.mean(axis=0), 1 - rate, atol=0.08)  # over 500 tokens
    assert len(np.unique(kept, axis=0)) > 30  # of 64: inputs are dropped independently


def test_layers_drop_different_inputs():
    class Two(nnx.Module):
        def __init__(self, rngs):
            self.one, self.two = (linear(40, 40, Compute(), rngs, bias=False) for _ in range(2))

        def __call__(self, x, key=None):
            return self.one(x), self.two(x)

    eye = dict.fromkeys("ab", np.eye(40, dtype=np.float32))
    params = {name: {"kernel": np.zeros((40, 40), np.float32)} for name in ("one", "two")}
    apply = lora.branched(functionalize(Two), alpha=40, rate=0.5)
    adapter = {f"{name}/kernel": eye for name in params}
    ones = np.ones((1, 40), np.float32)
    one, two = jax.device_get(jax.jit(apply)((adapter, params), ones, key=jax.random.key(0)))
    assert 5 < (one != two).sum() < 35


@pytest.mark.slow
def test_recomputing_blocks_draws_the_same_dropout(params, trained):
    def loss(adapter, remat):
        apply = lora.branched(Bert.functions(CONFIG, Compute(remat=remat)), alpha=2, rate=0.3)
        return (apply((adapter, params), IDS, MASK, key=jax.random.key(5)) ** 2).mean()

    kept, again = (jax.jit(jax.value_and_grad(loss), static_argnums=1)(trained, r) for r in (0, 1))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), kept, again)


def test_what_fits_no_network_is_refused(params):
    other = shapes({"other": {"kernel": np.ones((2, 2), "float32")}}, ".*", rank=1)
    with pytest.raises(ValueError, match="for other parameters: there are no other/kernel"):
        lora.merge(params, other, alpha=1)
    words = shapes(params, "word/embedding", rank=1)
    with pytest.raises(ValueError, match="not matrices of linear layers: word/embedding"):
        jax.eval_shape(lora.branched(NETWORK, alpha=1), (words, params), IDS, MASK)
    with pytest.raises(ValueError, match=r"rate must be in \[0, 1\), got 1"):
        lora.branched(NETWORK, alpha=1, rate=1)
