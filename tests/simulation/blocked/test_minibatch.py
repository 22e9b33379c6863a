"""The blocked form of mini-batches equals the scan up to rounding, wherever a run is cut."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxret as jr
from jaxret.environments.environment import Environment, simulated_reranker
from jaxret.environments.feedback import Censoring
from jaxret.learners.minibatch import adamw
from jaxret.rules import estimators, policies
from jaxret.runtime import sharding
from jaxret.simulation.blocked.simulate import (
    has_blocked_form,
    simulate_blocked,
    simulate_on_mesh,
)
from jaxret.simulation.scan import scan_rounds

ROUNDS = 100
IDS = np.arange(40)
ENVIRONMENT = Environment(
    noise_rate=0.1,
    reranker=simulated_reranker(accuracy=0.8),
    arrives=jnp.asarray(np.where(IDS % 4 == 1, 30, 0)),
    leaves=jnp.asarray(np.where(IDS % 4 == 2, 50, ROUNDS)),
)
SLATES = policies.softmax(k=3)
RULES = {
    "adamw": adamw(tau=0.3, eta=0.02, batch=12, policy=SLATES),
    "sgd": jr.minibatch("sgd", optax.sgd(0.1), tau=0.3, batch=5, policy=SLATES),
    "labels": jr.minibatch(
        "labels", optax.sgd(0.1), tau=0.3, batch=1, estimator=estimators.full_information()
    ),
}


@cache
def compiled(how, name):
    rule, key = RULES[name], jax.random.key(5)
    return jax.jit(rule.init), jax.jit(lambda *args: how(rule, args[0], ENVIRONMENT, args[1], key))


def finish(how, name, catalogue, stream, cuts=()):
    """Return the last state and the trace of a run that is cut at some rounds."""
    init, step = compiled(how, name)
    state, traces = init(*catalogue), []
    for order in np.split(np.asarray(stream.order), cuts):
        padded = np.pad(order, (0, ROUNDS - len(order)), constant_values=-1)
        state, trace = step(state, stream._replace(order=jnp.asarray(padded)))
        traces.append([line[: len(order)] for line in trace])
    return state, [np.concatenate(lines) for lines in zip(*traces, strict=True)]


def same(got, expected):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", RULES)
def test_blocks_are_the_scan(problem, name):
    with jax.enable_x64(True):
        catalogue, stream = problem()
        scanned = finish(scan_rounds, name, catalogue, stream)
        blocked = finish(simulate_blocked, name, catalogue, stream, cuts=[37, 64])
    same(blocked, scanned)
    assert np.abs(scanned[0].theta - catalogue.theta).max() > 0.01


def test_a_catalogue_split_over_devices_gives_the_same_run(problem):
    with jax.enable_x64(True):
        catalogue, stream = problem()
        mesh = sharding.make_mesh(item=8)

        def on_mesh(*args):
            return simulate_on_mesh(*args, mesh=mesh)

        whole = finish(simulate_blocked, "adamw", catalogue, stream)
        split = finish(on_mesh, "adamw", catalogue, stream)
    same(split, whole)


def test_rows_that_pad_the_catalogue_are_removed_from_all_of_the_state(problem):
    (theta, _), stream = problem(items=42)
    task = jr.Task.from_arrays(theta, stream.queries, stream.labels)
    run = jr.simulate(RULES["adamw"], task, devices=8)
    assert run.form == "mesh of 8 devices"
    extra = run.states.extra
    assert extra.coefficients.shape == (1, 12, 42)
    assert extra.optimiser[0].mu.shape == extra.optimiser[0].nu.shape == run.states.theta.shape


def test_a_round_without_feedback_has_no_blocked_form():
    silent = Environment(censoring=Censoring(after_success=0.5, after_failure=0.5))
    assert has_blocked_form(RULES["sgd"], ENVIRONMENT)
    assert not has_blocked_form(RULES["sgd"], silent)


def test_a_mixture_with_mini_batches_is_scanned():
    kinds = [jr.grid(jr.paper_adamw, tau=[0.3], eta=[0.02]), jr.grid(jr.greedy, tau=[0.3])]
    assert not has_blocked_form(jr.mixture(kinds), ENVIRONMENT)


def test_a_block_is_a_batch(problem):
    catalogue, stream = problem()
    rule = RULES["adamw"]
    with pytest.raises(ValueError, match="block must be the batch, 12, got 24"):
        simulate_blocked(
            rule, rule.init(*catalogue), ENVIRONMENT, stream, jax.random.key(0), block=24
        )


@pytest.mark.parametrize(
    ("optimiser", "batch", "message"),
    [
        (None, 5, "optimiser must be a transformation of optax, such as optax.sgd.*, got None"),
        (optax.sgd(0.1), 0, "batch must be >= 1, got 0"),
    ],
)
def test_a_wrong_optimiser_or_batch_is_refused(optimiser, batch, message):
    with pytest.raises(ValueError, match=message):
        jr.minibatch("mine", optimiser, tau=0.3, batch=batch)
