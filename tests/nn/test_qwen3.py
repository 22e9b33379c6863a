"""Qwen3 computed by hand, with left and right padding, both kinds of output, and a mesh."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from safetensors.numpy import save_file

from jaxret.nn import qwen3
from jaxret.nn.backbone import Backbone, read_backbone, shallow
from jaxret.nn.layers import last_pool
from jaxret.nn.placement import device_bytes, memory_report, placed
from jaxret.nn.qwen3 import angles, turn
from jaxret.nn.token_classifier import load_token_classifier, token_classifier
from jaxret.runtime import sharding
from tests.meshes import abstract_mesh
from tests.nn import config_files
from tests.nn.by_hand import exact
from tests.nn.published import QWEN3
from tests.slow import slowly
from tests.tiny import BACKBONES, weights

CONFIG = qwen3.Qwen3Config.from_json(config_files.QWEN3)
NETWORK = qwen3.Qwen3.functions(CONFIG)
APPLY = jax.jit(NETWORK.apply)
PARAMS = weights(NETWORK.shapes())
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 40, (5, 7)).astype(np.int32)
BEGIN, END = np.array([[0], [3], [0], [2], [6]]), np.array([[7], [7], [4], [5], [7]])
MASK = (np.arange(7) >= BEGIN) & (np.arange(7) < END)  # padded left, right, on both sides


def backbone(**changes):
    return Backbone(replace(CONFIG, **changes), qwen3.Qwen3, qwen3.KEYS, "model.")


def forward_by_hand(params, ids):
    """Compute Qwen3 for one text without padding, in float64, one head at a time."""
    p, waves = exact(params), np.outer(np.arange(len(ids)), [1.0, 100.0**-0.5])

    def norm(x, weights):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weights["scale"]

    def turned(x):
        """Rotate the pairs (0, 2) and (1, 3) as complex numbers."""
        z = (x[:, :2] + 1j * x[:, 2:]) * np.exp(1j * waves)
        return np.concatenate([z.real, z.imag], axis=1)

    x = p["word"]["embedding"][ids]
    for layer in "01":
        block = p["blocks"][layer]
        y = norm(x, block["attention_norm"])
        q, k, v = (y @ block[name]["kernel"] for name in ("query", "key", "value"))
        mixed = np.zeros((len(ids), 64))
        for head in range(16):
            own, shared = (slice(4 * n, 4 * n + 4) for n in (head, head // 2))
            query = turned(norm(q[:, own], block["query_norm"]))
            key = turned(norm(k[:, shared], block["key_norm"]))
            shares = np.tril(np.exp(query @ key.T / 2))
            mixed[:, own] = shares / shares.sum(1, keepdims=True) @ v[:, shared]
        x = x + mixed @ block["out"]["kernel"]
        y = norm(x, block["mlp_norm"])
        gate = y @ block["gate"]["kernel"]
        x = x + (gate / (1 + np.exp(-gate)) * (y @ block["up"]["kernel"])) @ block["down"]["kernel"]
    return norm(x, p["norm"])


def test_hidden_states_equal_a_forward_pass_by_hand_for_padding_on_either_side():
    got = np.asarray(APPLY(PARAMS, IDS, MASK))
    for text, there in enumerate(MASK):
        want = forward_by_hand(PARAMS, IDS[text, there])
        np.testing.assert_allclose(got[text, there], want, atol=2e-5)
    other = np.where(MASK, IDS, (IDS + 7) % 40)
    np.testing.assert_array_equal(got[MASK], np.asarray(APPLY(PARAMS, other, MASK))[MASK])


def test_a_later_token_changes_no_earlier_state():
    whole = np.ones_like(MASK)
    base = np.asarray(APPLY(PARAMS, IDS, whole))
    for place in range(7):
        other = IDS.copy()
        other[:, place] = (other[:, place] + 1) % 40
        moved = np.abs(APPLY(PARAMS, other, whole) - base).max(axis=-1)
        np.testing.assert_array_equal(moved[:, :place], 0)
        assert (moved[:, place:] > 1e-4).all()


def test_texts_and_rows_without_a_token_are_finite_and_so_are_gradients():
    mask = np.array([[False] * 7, [False] * 6 + [True]])

    one, params = shallow(backbone(), PARAMS, 1)
    network = one.network()

    def loss(params):
        hidden = network.apply(params, IDS[:2], mask)
        return (hidden**2).sum(), hidden  # includes padding, the worst case

    gradient, hidden = jax.jit(jax.grad(loss, has_aux=True))(params)
    assert np.isfinite(hidden).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_rotary_products_depend_only_on_the_distance():
    q, k = RNG.standard_normal((2, 1, 1, 1, 8)).astype(np.float32)
    places = np.array([[9, 4], [1005, 1000], [5, 0], [0, 5]])[..., None, None]

    @jax.jit
    @jax.vmap
    def products(at):
        return (turn(q, angles(at[0], 8, 1e4)) * turn(k, angles(at[1], 8, 1e4))).sum()

    near, far, first, back = np.asarray(products(places))
    np.testing.assert_allclose(near, far, atol=1e-3)
    np.testing.assert_allclose(first, near, atol=1e-5)
    assert abs(first - back) > 1e-2  # the sign of the distance matters
    unit = np.float32([1, 0]).reshape(1, 1, 1, 2)
    turned = jax.jit(lambda at: turn(unit, angles(at, 2, 1e6)))(np.array([[2]]))
    np.testing.assert_allclose(np.ravel(turned), [np.cos(2), np.sin(2)], atol=1e-6)  # two radians


def test_the_last_token_is_that_of_the_mask():
    hidden = np.tile(np.arange(35.0).reshape(5, 7, 1), 3)
    want = np.arange(5) * 7 + END[:, 0] - 1
    np.testing.assert_array_equal(np.asarray(jax.jit(last_pool)(hidden, MASK))[:, 1], want)


# ---- log probabilities of answers


def published(folder, head=None):
    """Return a checkpoint with HuggingFace's names for PARAMS and, optionally, a head [V, H]."""
    config = config_files.QWEN3 | {"tie_word_embeddings": head is None}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {"model.embed_tokens.weight": PARAMS["word"]["embedding"]}
    tensors["model.norm.weight"] = PARAMS["norm"]["scale"]
    names = {
        **{name: f"self_attn.{name[0]}_proj" for name in ("query", "key", "value")},
        "out": "self_attn.o_proj",
        **{name: f"mlp.{name}_proj" for name in ("gate", "up", "down")},
        "query_norm": "self_attn.q_norm",
        "key_norm": "self_attn.k_norm",
        "attention_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
    }
    for i, block in PARAMS["blocks"].items():
        for name, theirs in names.items():
            (leaf,) = block[name].values()  # matrices are transposed there
            tensors[f"model.layers.{i}.{theirs}.weight"] = leaf.T
    if head is not None:
        tensors["lm_head.weight"] = head
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors")
    return read_backbone(folder / "config.json")


@pytest.mark.parametrize("tied", [True, False])
def test_the_logits_of_two_words_are_those_rows_of_the_whole_head(tmp_path, tied):
    head = RNG.standard_normal((40, 24)).astype(np.float32)
    decoder = published(tmp_path, None if tied else head)
    words = [31, 4]
    params = load_token_classifier(decoder, tmp_path, words)
    shapes = [leaf.shape for leaf in jax.tree.leaves(params.get("head"))]
    assert shapes == ([] if tied else [(24, 2)])
    got = jax.jit(token_classifier(decoder, words).apply)(params, IDS, MASK)
    last = np.asarray(APPLY(PARAMS, IDS, MASK))[np.arange(5), END[:, 0] - 1]
    whole = last @ (np.asarray(PARAMS["word"]["embedding"]) if tied else head).T
    np.testing.assert_allclose(got, whole[:, words], atol=1e-5)


def test_missing_heads_unknown_words_and_other_backbones_are_refused(tmp_path):
    published(tmp_path)
    with pytest.raises(ValueError, match=r"1 tensors do not fit .*\n  missing head/kernel \(24, 2"):
        load_token_classifier(backbone(tied=False), tmp_path, [1, 2])
    for words in ([], [3, 3], [0, 40]):
        with pytest.raises(ValueError, match=r"words must be different numbers in 0 \.\. 39"):
            token_classifier(backbone(), words)
    with pytest.raises(ValueError, match=r"answers come from a decoder \(Qwen3\), got Bert"):
        token_classifier(BACKBONES["bert"], [1, 2])


# ---- on a mesh


@pytest.mark.parametrize("vocabulary", slowly([39, 40], {40}))  # 39 is not divisible by 8
def test_eight_devices_compute_what_one_does(vocabulary):
    decoder, params = shallow(backbone(vocab_size=vocabulary), PARAMS, 1)
    table = np.asarray(PARAMS["word"]["embedding"])[:vocabulary]
    params = {"backbone": params | {"word": {"embedding": table}}}
    mesh = sharding.make_mesh(model=8)
    rules = qwen3.tensor_parallel(decoder.config, mesh)
    spread = sharding.place(params, mesh, sharding.by_path(params, rules))
    ids, network = IDS % vocabulary, token_classifier(decoder, [3, 4])
    run = jax.jit(jax.value_and_grad(lambda params: network.apply(params, ids, MASK).sum()))
    want, got = run(params), run(spread)
    np.testing.assert_allclose(got[0], want[0], atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), got[1], want[1])
    kernel = spread["backbone"]["blocks"]["0"]["down"]["kernel"]
    assert {shard.data.shape for shard in kernel.addressable_shards} == {(4, 24)}


def test_memory_is_what_the_shards_really_take_and_is_known_before(tmp_path):
    decoder = published(tmp_path)
    mesh = sharding.make_mesh(model=4)
    shapes = decoder.shapes(dtype="bfloat16", mesh=mesh)
    params = decoder.load(tmp_path, dtype="bfloat16", mesh=mesh)
    judge = load_token_classifier(decoder, tmp_path, [3, 4], dtype="bfloat16", mesh=mesh)
    kernels = [tree["blocks"]["1"]["down"]["kernel"] for tree in (params, judge["backbone"])]
    assert [kernel.sharding.shard_shape(kernel.shape) for kernel in kernels] == [(8, 24)] * 2
    leaves = jax.tree.leaves(params)
    for device in mesh.devices.flat:
        held = [s.data.nbytes for x in leaves for s in x.addressable_shards if s.device == device]
        assert sum(held) == device_bytes(shapes) == device_bytes(params)
    assert memory_report(shapes) == memory_report(params)
    count = sum(x.size for x in leaves)
    assert f"{count:,} parameters in bfloat16: {2 * count / 1000:.3g} kB" in memory_report(shapes)
    assert "on each of 4 devices" in memory_report(shapes)
    assert "on one device" in memory_report(decoder.shapes())
    want = np.asarray(PARAMS["blocks"]["1"]["up"]["kernel"]).astype(jnp.bfloat16)
    np.testing.assert_array_equal(params["blocks"]["1"]["up"]["kernel"], want)


def test_a_preset_says_what_a_device_will_need_without_allocating_it():
    config = replace(QWEN3["8B"], layers=1)
    mesh = abstract_mesh(model=8)
    rules = qwen3.tensor_parallel(config, mesh)
    whole = qwen3.Qwen3.functions(config).shapes()
    shapes = placed(whole, dtype="bfloat16", mesh=mesh, rules=rules)
    table, matrices = 151665 * 4096, 4096 * (2 * 4096 + 2 * 1024 + 3 * 12288)
    assert device_bytes(shapes) == 2 * ((table + matrices) // 8 + 3 * 4096 + 2 * 128)


def test_a_mesh_that_cannot_share_the_heads_is_refused():
    mesh = abstract_mesh(model=16)
    with pytest.raises(ValueError, match="kv_heads=8 cannot be split over 16 devices: choose an"):
        qwen3.tensor_parallel(QWEN3["8B"], mesh)
    with pytest.raises(ValueError, match="needs an axis 'model', it has data"):
        qwen3.tensor_parallel(CONFIG, abstract_mesh(data=2))
    with pytest.raises(ValueError, match="give the mesh too"):
        placed(NETWORK.shapes(), rules=[("kernel", P("model"))])
