"""Blocked forms equal the scan, wherever a run is cut: replay, query maps, mini-batches."""

from functools import cache, partial

import jax
import numpy as np
import optax
import pytest

import jaxret as jr
from jaxret.environments.environment import Environment, simulated_reranker
from jaxret.environments.feedback import Censoring
from jaxret.learners.minibatch import adamw
from jaxret.learners.replay import Replay, ReplayBuffer, push_block, sample_block
from jaxret.rules import estimators, policies, preconditioners, projections, query_maps, schedules
from jaxret.runtime import sharding
from jaxret.simulation.blocked.simulate import has_blocked_form, simulate_blocked, simulate_on_mesh
from jaxret.simulation.engine import Simulation
from jaxret.simulation.scan import scan_rounds
from jaxret.testing import quick_jit
from tests.problems import coming_and_going, fixed_delay, same
from tests.slow import slowly

ROUNDS = 100
EFFECTS = coming_and_going(noise_rate=0.1, reranker=simulated_reranker(accuracy=0.8))
CENSORED = coming_and_going(  # silences whole tiles
    noise_rate=0.1, censoring=Censoring(after_success=0.4, after_failure=0.6)
)
SILENT = Censoring(after_success=1.0, after_failure=1.0)
# The schedule counts replayed rounds one round later.
STEPS = {"tau": 0.2, "eta": 0.02, "schedule": schedules.inverse_sqrt()}
GREEDY, ORAG = jr.greedy(**STEPS), jr.orag(**STEPS)
BY_ROW = jr.with_preconditioner(GREEDY, preconditioners.by_row())
MAPPED = jr.with_query_map(BY_ROW, query_maps.mean_centred(rate=0.5), map_every=16)
FREE = jr.orag(tau=0.2, eta=0.02, k=2, projection=projections.none())
LINEAR = query_maps.linear(rate=0.5)
CENTRED = query_maps.mean_centred(rate=0.5, share=0.8, count=20.0)
LOW_RANK = query_maps.low_rank(rate=0.5, rank=3)
SLATES = policies.softmax(k=3)


def tiled(query_map, every, **options):
    return jr.with_query_map(jr.greedy(**STEPS, **options), query_map, map_every=every)


REPLAY = {  # with blocks of 16 rounds
    "replayed": jr.with_experience_replay(GREEDY, per_round=3, capacity=30),
    "replayed from less than a block": jr.with_experience_replay(FREE, per_round=2, capacity=5),
    "all of it": jr.with_experience_replay(MAPPED, per_round=2, capacity=30),
}
BATCHES = {
    "adamw": adamw(tau=0.3, eta=0.02, batch=12, policy=SLATES),
    "sgd": jr.minibatch("sgd", optax.sgd(0.1), tau=0.3, batch=5, policy=SLATES),
    "labels": adamw(
        tau=0.3, eta=0.02, batch=12, policy=SLATES, estimator=estimators.full_information()
    ),
    "single rounds": jr.minibatch("single", optax.sgd(0.1), tau=0.3, batch=1),
}
CASES = {  # learner, environment, block
    "by row": (BY_ROW, EFFECTS, 16),
    "by row, mapped": (MAPPED, EFFECTS, 16),
    **{name: (rule, EFFECTS, 16) for name, rule in REPLAY.items()},
    **{name: (rule, EFFECTS, None) for name, rule in BATCHES.items()},
    "linear": (tiled(LINEAR, 8), CENSORED, None),
    "centred": (tiled(CENTRED, 8), CENSORED, None),
    "low rank": (tiled(LOW_RANK, 8), CENSORED, None),
    "low rank, a tile longer than the run": (tiled(LOW_RANK, 256), CENSORED, None),
    "linear, free rows": (tiled(LINEAR, 24, projection=projections.none()), CENSORED, None),
    "centred, two blocks": (tiled(CENTRED, 32), CENSORED, 16),
    "low rank, free rows, two blocks": (
        tiled(LOW_RANK, 32, projection=projections.none()),
        CENSORED,
        16,
    ),
    "tiles of 32": (tiled(CENTRED, 32), CENSORED, None),
}


# Their parts are also in another case or, for few rounds to replay, in the ring by hand; blocks
# without a query map are in test_simulate.py.
QUICK = {"all of it", "labels", "low rank, free rows, two blocks", "tiles of 32"}
SLOW = {(form, name) for form in ("blocked", "mesh") for name in CASES if name not in QUICK}
FORMS = [*(("blocked", name) for name in CASES), ("mesh", "adamw")]


@pytest.fixture
def world(problem):
    """Return a catalogue and a stream in float64, in which the test runs."""
    with jax.enable_x64(True):
        yield problem(items=40)


@cache
def compiled(form, name):
    rule, environment, block = CASES[name]
    how = {
        "scan": scan_rounds,
        "blocked": partial(simulate_blocked, block=block),
        "mesh": partial(simulate_on_mesh, mesh=sharding.make_mesh(item=8)),
    }[form]

    @jax.jit
    def run(state, stream, censoring):
        key = jax.random.key(5)
        return how(rule, state, environment._replace(censoring=censoring), stream, key)

    return partial(run, censoring=environment.censoring)


def start_of(name, catalogue):
    return jax.jit(CASES[name][0].init)(*catalogue)


def part_of(stream, start, end):
    """Stream a slice of rounds, padded with -1 (end of stream) to a fixed shape."""
    order = np.full(ROUNDS, -1, stream.order.dtype)
    order[: end - start] = stream.order[start:end]
    return stream._replace(order=order)


@pytest.mark.parametrize(("form", "name"), slowly(FORMS, SLOW))
def test_a_form_is_the_scan(world, form, name):
    catalogue, stream = world
    start = start_of(name, catalogue)
    scanned, other = (compiled(how, name)(start, stream) for how in ("scan", form))
    np.testing.assert_array_equal(other[1].item, scanned[1].item)
    same(other, scanned, tolerance=1e-12)
    assert np.abs(scanned[0].theta - catalogue.theta).max() > 0.01


@pytest.mark.parametrize(
    ("form", "name", "block"),
    [
        ("blocked", "all of it", 16),
        ("scan", "tiles of 32", 1),
        ("blocked", "tiles of 32", 32),
        ("blocked", "labels", ROUNDS),
    ],
)
def test_a_run_can_be_cut_and_resumed_anywhere(world, form, name, block):
    """Exact in the scan and at the end of blocks; elsewhere up to rounding."""
    catalogue, stream = world
    run, start = compiled(form, name), start_of(name, catalogue)
    whole = run(start, stream)
    for cut in (37, 48, 64):
        middle, first = run(start, part_of(stream, 0, cut))
        last, second = run(middle, part_of(stream, cut, ROUNDS))
        parts = zip(first, second, strict=True)
        joined = [np.concatenate([a[:cut], b[: ROUNDS - cut]]) for a, b in parts]
        same((last, joined), whole, tolerance=1e-12 if cut % block else 0.0)


@pytest.mark.parametrize("form", ["scan", "blocked"])
def test_the_first_minus_one_ends_a_stream(world, form):
    """Continue the order after a -1; blocks of plain updates may go on there."""
    catalogue, stream = world
    run, start = compiled(form, "tiles of 32"), start_of("tiles of 32", catalogue)
    padded = part_of(stream, 0, 48)
    interrupted = np.where(np.arange(ROUNDS) == 48, padded.order, stream.order)
    (state, trace), expected = (
        run(start, stream._replace(order=order)) for order in (interrupted, padded.order)
    )
    same((state, [line[:48] for line in trace]), (expected[0], [x[:48] for x in expected[1]]))
    assert state.t == 48
    if form == "scan":
        assert not any(line[48:].any() for line in trace)


def test_blocks_without_an_answer_leave_the_map_unchanged(world):
    catalogue, stream = world
    start = start_of("tiles of 32", catalogue)
    run = compiled("blocked", "tiles of 32")
    middle, _ = run(start, stream)
    state, _ = run(middle, stream, censoring=SILENT)
    same(state.extra, middle.extra)
    assert state.t == 2 * ROUNDS


@pytest.mark.parametrize(
    ("real", "rings"),
    [
        ([0, 1, 1, 1, 0], {1: [10, 11, 1], 2: [2, 11, 1], 3: [2, 3, 1]}),
        # more rounds than slots: the block overwrites its own
        ([1] * 5, {0: [10, 11, 0], 1: [1, 11, 0], 2: [1, 2, 0], 3: [1, 2, 3], 4: [4, 2, 3]}),
    ],
)
def test_a_ring_by_hand(real, rings):
    """C = 3 after two rounds; ``rings`` are the queries of the ring in each real round."""
    replay = Replay(GREEDY.structure, per_round=50, capacity=3, seed=0)
    past, queries = np.float32([[10], [11], [0]]), np.arange(5, dtype=np.float32)[:, None]
    real = np.array(real, bool)
    t = (7 + np.cumsum(real) - real).astype(np.int32)
    sample, push = quick_jit(partial(sample_block, replay)), quick_jit(push_block)
    slots, old = jax.device_get(sample(past, np.int32(2), t, real, queries))
    assert slots.own[real].tolist() == [(2 + n) % 3 for n in range(len(rings))]
    for place, ring in rings.items():
        assert set(slots.sampled[place].tolist()) == {0, 1, 2}
        np.testing.assert_array_equal(old[place, :, 0], np.array(ring)[slots.sampled[place]])
    bits = ReplayBuffer((), *np.zeros((3, 3), np.float32))
    after, count = push(past, bits, np.int32(2), real, queries)
    assert (after.query[:, 0].tolist(), count) == (ring, 2 + len(rings))


def test_rows_that_pad_the_catalogue_are_removed_from_all_of_the_state(problem):
    (theta, _), stream = problem(items=42)
    task = jr.Task.from_arrays(theta, stream.queries, stream.labels)
    family, numbers = jr.traced(BATCHES["adamw"])
    simulation = Simulation(family, task, seeds=[0], example=numbers, devices=8)
    padded = simulation.start(simulation.setting(*numbers))
    assert padded.theta.shape == (1, 48, 8)
    state = simulation._unpadded(padded)
    assert state.extra.coefficients.shape == (1, 12, 42)
    adam = state.extra.optimiser[0]
    assert adam.mu.shape == adam.nu.shape == state.theta.shape == (1, 42, 8)


def test_which_learners_have_a_blocked_form():
    """Replay and mini-batches need every answer."""
    for name, (rule, environment, _) in CASES.items():
        assert has_blocked_form(rule, environment), name
        assert has_blocked_form(rule, CENSORED) == (name not in REPLAY | BATCHES), name
    exploring = jr.with_exploration(REPLAY["replayed"], 0.1)  # a wrapper around replay
    batches = jr.grid(jr.paper_adamw, tau=[0.3], eta=[0.02])
    mixture = jr.mixture([batches, jr.grid(jr.greedy, tau=[0.3])])
    for rule in (exploring, jr.whitened(), jr.mapped(), jr.mapped_replayed(), mixture):
        assert not has_blocked_form(rule, Environment()), rule.name


@pytest.mark.parametrize(
    ("rule", "environment", "sizes", "message"),
    [
        (ORAG, EFFECTS, {"block": 20, "tile": 8}, "block must be a multiple of tile=8, got 20"),
        (ORAG, EFFECTS, {"block": 0, "tile": 8}, "block must be a multiple of tile=8, got 0"),
        (ORAG, EFFECTS, {"block": 16, "tile": 0}, "tile must be >= 1, got 0"),
        (BATCHES["adamw"], EFFECTS, {"block": 24}, "block must be the batch, 12, got 24"),
        (
            tiled(LINEAR, 32),
            EFFECTS,
            {"block": 24},
            "block must be a divisor of map_every=32, got 24",
        ),
        (tiled(LINEAR, 12), EFFECTS, {}, "has no blocked form: use scan_rounds"),
        (
            ORAG._replace(name="other", structure=None),
            EFFECTS,
            {},
            "'other' has no blocked form: use scan_rounds",
        ),
        (
            ORAG,
            Environment(delay=fixed_delay(1)),
            {},
            "interventions on the learner have no blocked form",
        ),
    ],
)
def test_blocks_that_do_not_fit_are_refused(problem, rule, environment, sizes, message):
    catalogue, stream = problem()
    with pytest.raises(ValueError, match=message):
        simulate_blocked(
            rule, rule.init(*catalogue), environment, stream, jax.random.key(0), **sizes
        )
