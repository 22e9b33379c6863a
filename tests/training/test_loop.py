"""The training loop on a linear regression, where every number has a closed form."""

import itertools
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxret.nn.layers import dropout
from jaxret.runtime import sharding
from jaxret.runtime.checkpoint import Interrupted, run_chunks
from jaxret.runtime.tracking import NoopTracker
from jaxret.training.batches import Batches, shuffled
from jaxret.training.loop import fit, start, train_step
from tests.slow import slowly

RNG = np.random.default_rng(0)
X = RNG.standard_normal((100, 6)).astype(np.float32)
Y = RNG.standard_normal((100, 4)).astype(np.float32)
PARAMS = {"dense": {"kernel": jnp.asarray(RNG.standard_normal((6, 4)), jnp.float32)}}
PARAMS["dense"]["bias"] = jnp.zeros(4)
BATCH = {"x": X[:16], "y": Y[:16]}
SGD = optax.sgd(0.1)


def batches():
    return shuffled([1] * 100, lambda rows: {"x": X[rows], "y": Y[rows]}, size=16, seed=5)


def loss(params, batch, key, rate=0.0):
    x = dropout(batch["x"], rate, key)
    error = x @ params["dense"]["kernel"] + params["dense"]["bias"][None] - batch["y"]
    return (error**2).mean(), {"largest": jnp.abs(error).max()}


noisy = partial(loss, rate=0.25)


def validate(params):
    value, _ = loss(jax.device_get(params), {"x": X, "y": Y}, None)
    return {"negative_error": -float(value)}


def fitted(*, accumulate=2, steps=12, **options):
    optimizer = optax.adamw(0.05)
    state = start(PARAMS, optimizer, jax.random.key(3))
    step = train_step(noisy, optimizer, accumulate=accumulate)
    return fit(state, step, batches(), steps=steps, every=4, **{"validate": validate} | options)


@cache
def alone(accumulate=2):
    """Return the uninterrupted run on one device, with which other runs are compared."""
    return fitted(accumulate=accumulate)


def raw(tree):
    """Return the leaves as NumPy arrays, keys as their bits."""

    def bits(leaf):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

    return list(map(bits, jax.tree.leaves(tree)))


def assert_close(a, b, tolerance=1e-6):
    for ours, theirs in zip(raw(a), raw(b), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=tolerance)


def test_a_step_is_one_of_gradient_descent():
    before = start(PARAMS, SGD, jax.random.key(0))
    after, info = jax.jit(train_step(loss, SGD))(before, BATCH)
    w, x, y = (np.asarray(a, np.float64) for a in (PARAMS["dense"]["kernel"], X[:16], Y[:16]))
    error = x @ w - y
    slope, of_bias = 2 * x.T @ error / error.size, 2 * error.sum(axis=0) / error.size
    np.testing.assert_allclose(after.params["dense"]["kernel"], w - 0.1 * slope, atol=1e-6)
    np.testing.assert_allclose(after.params["dense"]["bias"], -0.1 * of_bias, atol=1e-6)
    np.testing.assert_allclose(info["loss"], (error**2).mean(), rtol=1e-5)
    np.testing.assert_allclose(info["largest"], np.abs(error).max(), rtol=1e-5)
    length = np.sqrt((slope**2).sum() + (of_bias**2).sum())
    np.testing.assert_allclose(info["gradient_norm"], length, rtol=1e-5)
    assert (after.step, after.position) == (1, 16)
    assert before.step == 0  # the input is unchanged
    assert_close(before.params, PARAMS, tolerance=0)


@pytest.mark.parametrize("accumulate", [2, 16])
def test_parts_of_a_batch_make_the_same_step_as_the_whole(accumulate):
    state = start(PARAMS, SGD, jax.random.key(0))
    whole, told = jax.jit(train_step(loss, SGD))(state, BATCH)
    parts, info = jax.jit(train_step(loss, SGD, accumulate=accumulate))(state, BATCH)
    assert_close(parts, whole)
    np.testing.assert_allclose(info["loss"], told["loss"], rtol=1e-5)
    np.testing.assert_allclose(info["gradient_norm"], told["gradient_norm"], rtol=1e-5)
    assert info["largest"] < told["largest"]  # a mean over parts, as for any metric


def test_parts_that_are_not_equal_and_fits_of_no_steps_are_refused():
    state = start(PARAMS, SGD, jax.random.key(0))
    with pytest.raises(ValueError, match="accumulate=5 must divide the batch of 16 examples"):
        jax.eval_shape(train_step(loss, SGD, accumulate=5), state, BATCH)
    with pytest.raises(ValueError, match="accumulate must be at least 1, got 0"):
        train_step(loss, SGD, accumulate=0)
    for name in ("steps", "every"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            fit(None, None, batches(), **{"steps": 3, "every": 3, "validate": validate, name: 0})


def test_every_step_and_every_part_has_noise_of_its_own():
    def draws(params, batch, key):
        return params["w"] * 0.0, {"draw": jax.random.uniform(key)}

    def of(*numbers):
        key = jax.random.key(9)
        for number in numbers:
            key = jax.random.fold_in(key, number)
        return float(jax.random.uniform(key))

    batch = {"x": np.zeros((2, 1), np.float32)}
    whole, halves = (jax.jit(train_step(draws, SGD, accumulate=n)) for n in (1, 2))
    state = start({"w": jnp.ones(())}, SGD, jax.random.key(9))
    for t in range(2):
        _, info = halves(state, batch)
        np.testing.assert_allclose(info["draw"], (of(t, 0) + of(t, 1)) / 2, rtol=1e-6)
        state, info = whole(state, batch)
        np.testing.assert_allclose(info["draw"], of(t), rtol=1e-6)
    assert len({of(0), of(1), of(0, 0), of(0, 1)}) == 4


RULES = [("kernel", P(None, "model"))]
LAYOUTS = {
    "no mesh": {},
    "1 device": {"mesh": sharding.make_mesh(data=1)},
    "8 devices": {"mesh": sharding.make_mesh(data=8)},
    "4 x 2 devices": {"mesh": sharding.make_mesh(data=4, model=2), "rules": RULES},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("accumulate", slowly([1, 2], {1}))
def test_one_program_ends_with_the_same_parameters_where_the_rules_put_them_on_any_devices(
    layout, accumulate, caplog
):
    expected, mesh = alone(accumulate), LAYOUTS[layout].get("mesh")
    with jax.log_compiles():
        found = fitted(accumulate=accumulate, **LAYOUTS[layout])
    programs = [line for line in caplog.messages if line.startswith("Compiling jit(step)")]
    assert len(programs) == 1
    assert_close(found, expected)
    devices = found.state.params["dense"]["kernel"].sharding.device_set
    assert len(devices) == (mesh.size if mesh else 1)
    if "rules" in LAYOUTS[layout]:
        adam = found.state.opt_state[0]
        for tree in (found.state.params, found.best, adam.mu, adam.nu):
            assert tree["dense"]["kernel"].sharding.shard_shape((6, 4)) == (6, 2)
            assert tree["dense"]["bias"].sharding.is_fully_replicated


def test_a_batch_is_split_and_the_gradients_are_summed():
    mesh = sharding.make_mesh(data=8)
    state = start(PARAMS, SGD, jax.random.key(0))
    state = sharding.place(state, mesh, sharding.by_path(state, ()))
    batch = jax.device_put(BATCH, NamedSharding(mesh, P("data")))
    assert batch["x"].sharding.shard_shape((16, 6)) == (2, 6)
    program = jax.jit(train_step(loss, SGD)).lower(state, batch).compile().as_text()
    assert "all-reduce" in program
    assert "f32[2,6]" in program
    assert "f32[16,6]" not in program  # no device receives the whole batch
    assert "all-gather" not in program


def chunked(folder, stop=None):
    """Make a fit resumable, and interrupt it in chunk number ``stop``."""
    asked = itertools.count(1)
    return partial(run_chunks, folder, lambda: next(asked) == stop)


def test_an_interrupted_fit_resumes_to_the_same_bits(tmp_path):
    straight, validated = alone(), []

    def seen(params):
        validated.append(None)
        return validate(params)

    with pytest.raises(Interrupted, match="stopped at step 2"):
        fitted(resumable=chunked(tmp_path, stop=2), validate=seen)
    assert len(validated) == 2
    again = fitted(resumable=chunked(tmp_path), validate=seen)
    assert len(validated) == 3  # only the third chunk remained
    assert again.state.position == 12 * 16
    assert jax.tree.structure(again) == jax.tree.structure(straight)
    for ours, theirs in zip(raw(again), raw(straight), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_a_fit_is_resumed_on_another_number_of_devices(tmp_path):
    with pytest.raises(Interrupted):
        fitted(resumable=chunked(tmp_path, stop=1), mesh=sharding.make_mesh(data=8))
    again = fitted(resumable=chunked(tmp_path), mesh=sharding.make_mesh(data=2))
    assert_close(again, alone())


def counting(*, scores, steps, every=1, tracker=None):
    """Fit a single parameter that counts the steps, with a given score after each step."""
    optimizer = optax.sgd(1.0)

    def upward(params, batch, key):
        return -params["w"] + batch["x"].mean(), {}

    def at(position):  # NaN from the fifth example on
        return {"x": np.full((1, 1), np.nan if position >= 4 else 0.5, np.float32)}

    state = start({"w": jnp.zeros(())}, optimizer, jax.random.key(0))
    return fit(
        state,
        train_step(upward, optimizer),
        Batches(at=at, size=1, epoch=9),
        steps=steps,
        every=every,
        validate=lambda params: {"score": scores[int(params["w"])], "other": 7.0},
        tracker=tracker,
        title="toy",
    )


@pytest.mark.parametrize("scores", [[0, 0.1, 0.5, 0.5, 0.2], [0, np.nan, 0.5, np.nan, 0.2]])
def test_the_best_parameters_are_kept_the_earliest_of_equals_and_never_of_nan(scores):
    done = counting(scores=scores, steps=4)
    assert (done.best["w"], done.best_step, done.score) == (2, 2, 0.5)
    assert done.state.params["w"] == 4


def test_validation_comes_every_few_steps_and_after_the_last():
    class Kept(NoopTracker):
        def __init__(self):
            self.lines = []

        def log(self, metrics, step):
            self.lines.append((step, metrics))

    tracker = Kept()
    counting(scores=[0, 1, 2, 3], steps=3, every=2, tracker=tracker)
    (first, numbers), (last, _) = tracker.lines
    assert (first, last) == (2, 3)
    trained = {"toy/loss": 0.0, "toy/gradient_norm": 1.0}  # losses of 0.5 and -0.5
    assert numbers == trained | {"toy/score": 2.0, "toy/other": 7.0}


def test_a_loss_that_is_no_number_ends_the_fit_and_its_steps_are_named():
    with pytest.raises(FloatingPointError, match=r"toy: the loss is nan in steps 4 \.\. 6: lower"):
        counting(scores=range(9), steps=9, every=3)


def test_a_fit_leaves_what_it_started_from(tmp_path):
    """Cover an optimiser that stores the parameters themselves, such as an average."""
    average = optax.GradientTransformation(
        init=lambda params: params, update=lambda slope, kept, params: (slope, kept)
    )
    optimizer, key = optax.chain(average, SGD), jax.random.key(0)
    state = start(PARAMS, optimizer, key)
    fit(state, train_step(noisy, optimizer), batches(), steps=2, every=2, validate=validate)
    assert state.params["dense"]["kernel"].is_deleted()
    assert not key.is_deleted()
    assert np.isfinite(PARAMS["dense"]["kernel"]).all()


X4 = X[:32, :4]
BASE = np.arange(4, dtype=np.float32)
Y4 = X4 @ [3.0, 1, 2, 3]
LINES = shuffled([1] * 32, lambda rows: {"x": X4[rows], "y": Y4[rows]}, size=8, seed=0)


def of_pair(pair, batch, key):
    trained, frozen = pair
    return ((batch["x"] @ (trained + frozen) - batch["y"]) ** 2).mean(), {}


@pytest.mark.parametrize(("devices", "accumulate"), [(None, 1), (4, 2)])
def test_only_the_trained_part_moves(devices, accumulate):
    state = start(jnp.zeros(4), SGD, jax.random.key(0))
    found = fit(
        state,
        train_step(of_pair, SGD, accumulate=accumulate),
        LINES,
        steps=160,
        validate=lambda trained: {"closeness": -abs(float(np.asarray(trained)[0]) - 3)},
        every=20,
        frozen=jnp.asarray(BASE),
        mesh=None if devices is None else sharding.make_mesh(data=devices),
        progress=False,
    )
    np.testing.assert_allclose(found.best, [3, 0, 0, 0], atol=1e-3)  # with BASE: 3, 1, 2, 3
    assert len(jax.tree.leaves(found.state)) == len(jax.tree.leaves(state))


def test_a_compiled_step_holds_no_copy_of_what_is_frozen():
    state = start(jnp.zeros(4), SGD, jax.random.key(0))
    batch = jax.tree.map(jnp.asarray, LINES(0))
    step = jax.jit(train_step(of_pair, SGD))
    states = [step(state, batch, jnp.full(4, base))[0].params for base in (0.0, 1.0)]
    assert step._cache_size() == 1
    assert np.abs(states[0] - states[1]).max() > 0.01
