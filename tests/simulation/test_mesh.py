"""A catalogue split over devices: the same run, with only scalars sent between devices."""

import re
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxret.environments.environment import Environment, simulated_reranker
from jaxret.learners import presets
from jaxret.learners.bandits.perceptrons import banditron
from jaxret.rules import projections, schedules
from jaxret.runtime import sharding
from jaxret.simulation.blocked.simulate import TILE, simulate_blocked, simulate_on_mesh
from tests.problems import coming_and_going, same
from tests.slow import slowly

DEVICES = [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 4)), 8]
SPHERE = {"projection": projections.sphere(), "schedule": schedules.inverse_sqrt()}
ORAG = presets.orag(tau=0.2, eta=0.02, **SPHERE)
SLATES = presets.orag(tau=0.2, eta=0.02, k=5, **SPHERE)
BANDITRON = banditron(tau=0.2, eta=0.1, epsilon=0.2, projection=projections.none())
KEY = partial(jax.random.key, 4)


EFFECTS = {"noise_rate": 0.1, "reranker": simulated_reranker(accuracy=0.8)}


def on_devices(n, rule, catalogue, stream, environment, **blocks):
    """Run on a mesh of n devices; n = 0 is the plain blocked form."""
    how = partial(simulate_on_mesh, mesh=sharding.make_mesh(item=n)) if n else simulate_blocked
    run = jax.jit(lambda state: how(rule, state, environment, stream, KEY(), **blocks))
    return run(jax.jit(rule.init)(*catalogue))


@pytest.fixture(scope="module")
def undivided(problem):
    """Return a function (x64, rule) -> (run on n devices, result of the plain blocked form)."""

    @cache
    def forms(x64, rule):
        catalogue, stream = problem()
        blocks = {"environment": coming_and_going(**EFFECTS), "block": 24}
        run = partial(on_devices, rule=rule, catalogue=catalogue, stream=stream, **blocks)
        return run, run(0)

    return forms


@pytest.mark.parametrize("n", DEVICES)
@pytest.mark.parametrize(
    ("x64", "rule", "tolerance"),
    [
        pytest.param(True, SLATES, 1e-10, id="float64, k=5"),
        pytest.param(False, ORAG, 1e-4, id="float32", marks=pytest.mark.slow),
    ],
)
def test_one_device_and_many_choose_the_same_items(undivided, x64, rule, tolerance, n):
    with jax.enable_x64(x64):
        run, (state, trace) = undivided(x64, rule)
        split_state, split_trace = run(n)
        np.testing.assert_array_equal(split_trace.item, trace.item)
        same(split_trace, trace, tolerance)
        np.testing.assert_allclose(split_state.theta, state.theta, rtol=tolerance, atol=tolerance)
        for rows in split_state[:2]:  # each device keeps its own
            assert rows.sharding.shard_shape(rows.shape) == (40 // n, *rows.shape[1:])


def test_a_catalogue_that_does_not_divide_is_refused_with_the_way_out(problem):
    catalogue, stream = problem(items=37)
    with pytest.raises(ValueError, match=r"37 items .* 8 devices: pad .*padded\(catalogue, 8\)"):
        on_devices(8, ORAG, catalogue, stream, Environment())


COLLECTIVE = re.compile(
    r"= (?P<shapes>.*?) (?P<name>all-gather|all-reduce|all-to-all|collective-permute"
    r"|collective-broadcast|reduce-scatter|ragged-all-to-all|send|recv)(-start)?\("
)


def elements_sent(program, devices):
    """Return (name, elements sent per device) of each collective in a compiled program."""
    found = []
    for line in program.as_text().splitlines():
        if match := COLLECTIVE.search(line):
            shapes = re.findall(r"\w+\[([\d,]*)\]", match["shapes"])
            total = sum(int(np.prod([int(n) for n in s.split(",") if n] or [1])) for s in shapes)
            found.append((match["name"], total / devices if "gather" in match["name"] else total))
    return found


# The messages of a tile's rounds are measured together.
@pytest.mark.parametrize(
    ("rule", "tile"),
    slowly([(ORAG, 1), (SLATES, TILE), (BANDITRON, TILE)], [(ORAG, 1), (BANDITRON, TILE)]),
)
def test_a_round_sends_a_few_scalars_between_devices(problem, rule, tile):
    catalogue, stream = problem(items=8192, width=32)
    mesh, environment = sharding.make_mesh(item=8), coming_and_going(8192, **EFFECTS)
    run = partial(simulate_on_mesh, mesh=mesh, block=32, tile=tile)
    program = jax.jit(lambda s: run(rule, s, environment, stream, KEY())).lower(
        jax.eval_shape(rule.init, *catalogue)
    )
    sent = elements_sent(program.compile(), devices=8)
    assert len(sent) >= 3  # a maximum, sums, the chosen entry
    few = 8 * rule.structure.policy.k * tile  # less than a vector of a device's 1024 rows
    assert max(count for _, count in sent) <= few, sent


def test_the_search_for_collectives_finds_a_gathered_catalogue():
    mesh = sharding.make_mesh(item=8)
    rows = jax.ShapeDtypeStruct((64, 16), jnp.float32, sharding=NamedSharding(mesh, P("item")))
    gathered = jax.shard_map(
        lambda x: lax.all_gather(x, "item", tiled=True),
        mesh=mesh,
        in_specs=P("item"),
        out_specs=P(),
        check_vma=False,
    )
    assert elements_sent(jax.jit(gathered).lower(rows).compile(), 8) == [("all-gather", 8 * 16)]
    # A top-k over split rows forces the compiler to gather.
    ranked = jax.jit(lambda theta: lax.top_k(theta.sum(axis=1), 4))
    assert max(count for _, count in elements_sent(ranked.lower(rows).compile(), 8)) >= 8
