"""The blocked form of a mixture equals the scan up to rounding, for all kinds of experts."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.environments.environment import Environment, simulated_reranker
from jaxret.environments.feedback import Censoring
from jaxret.learners import presets
from jaxret.learners.mixture import default_experts, mixture
from jaxret.learners.wrappers import with_exploration
from jaxret.rules import policies, projections
from jaxret.simulation.blocked.simulate import has_blocked_form, simulate_blocked
from jaxret.simulation.scan import scan_rounds
from jaxret.testing import check_learner
from tests.problems import same
from tests.slow import slowly

ITEMS, ROUNDS = 40, 100
IDS = np.arange(ITEMS)
ENVIRONMENT = Environment(
    noise_rate=0.1,
    reranker=simulated_reranker(accuracy=0.8),
    arrives=jnp.asarray(np.where(IDS % 4 == 1, 30, 0)),
    leaves=jnp.asarray(np.where(IDS % 4 == 2, 50, ROUNDS)),
)
HARD = ENVIRONMENT._replace(censoring=Censoring(after_success=0.4, after_failure=0.6))
SILENT = Censoring(after_success=1.0, after_failure=1.0)

FROZEN = jr.grid(presets.frozen, tau=[0.1, 0.4])
GREEDY = jr.grid(presets.greedy, tau=[0.2, 0.4], eta=0.02)
FREE = jr.grid(presets.greedy, tau=[0.3], eta=0.02, projection=projections.none())
MAPPED = jr.grid(presets.mapped, tau=[0.2, 0.3], eta=0.02, map_every=16)
CENTRED = jr.grid(presets.centred, tau=[0.2, 0.4], eta=[0.02], map_every=48)
REPLAYED = jr.grid(presets.mapped_replayed, tau=[0.2], eta=[0.01], map_every=16, per_round=2)
ROW_STEPS = jr.grid(presets.row_steps, tau=[0.2, 0.5], eta=0.02)

DRAWN = {"beta": 0.5, "floor": 0.1, "policy": policies.softmax()}

RULES = {
    "rows and maps": mixture([FROZEN, FREE, MAPPED, CENTRED], alpha=0.1, **DRAWN),
    "rows alone, of slates": mixture([GREEDY, ROW_STEPS], alpha=0.0, policy=policies.greedy(k=3)),
    "all frozen": mixture([FROZEN], alpha=0.1),
    "replayed": mixture([FROZEN, REPLAYED]),
}


def environment_of(name):
    return ENVIRONMENT if name == "replayed" else HARD  # replay requires every answer


@cache
def compiled(how, name):
    rule, environment, key = RULES[name], environment_of(name), jax.random.key(5)

    @jax.jit
    def run(state, stream, censoring):
        return how(rule, state, environment._replace(censoring=censoring), stream, key)

    return lambda *given, censoring=environment.censoring: run(*given, censoring)


SLOW = {"rows alone, of slates", "all frozen"}


@pytest.mark.parametrize("name", slowly(RULES, SLOW))
def test_blocks_are_the_scan(problem, name):
    """Compare items, Theta and map of every expert, weights, calibration and losses."""
    with jax.enable_x64(True):
        catalogue, stream = problem(items=ITEMS)
        start = jax.jit(RULES[name].init)(*catalogue)
        forms = (scan_rounds, simulate_blocked)
        scanned, blocked = (compiled(how, name)(start, stream) for how in forms)
    np.testing.assert_array_equal(blocked[1].item, scanned[1].item)
    same(blocked, scanned, tolerance=1e-12)
    assert np.isnan(scanned[1].reward).any() == (name != "replayed")
    weights = np.exp(scanned[0].extra.log_weights)
    assert np.ptp(weights) > 0.05  # the weights have changed


def test_a_run_cut_in_two_equals_the_whole(problem):
    """Exact if the cut is at the end of a block of 16 rounds; otherwise up to rounding."""
    run = compiled(simulate_blocked, "rows and maps")
    with jax.enable_x64(True):
        catalogue, stream = problem(items=ITEMS)
        order = np.asarray(stream.order)

        def padded(part):
            order = np.pad(part, (0, ROUNDS - len(part)), constant_values=-1)
            return stream._replace(order=order)

        start = jax.jit(RULES["rows and maps"].init)(*catalogue)
        whole = run(start, stream)
        for cut in (37, 64):
            middle, first = run(start, padded(order[:cut]))
            last, second = run(middle, padded(order[cut:]))
            assert middle.t == cut
            joined = [
                np.append(a[:cut], b[: ROUNDS - cut]) for a, b in zip(first, second, strict=True)
            ]
            same((last, joined), whole, tolerance=1e-12 if cut % 16 else 0.0)


def test_without_feedback_no_expert_and_no_weight_changes(problem):
    with jax.enable_x64(True):
        catalogue, stream = problem(items=ITEMS)
        start = jax.jit(RULES["rows and maps"].init)(*catalogue)
        state, trace = compiled(simulate_blocked, "rows and maps")(start, stream, censoring=SILENT)
    assert np.isnan(trace.reward).all()
    same(state, start._replace(t=ROUNDS), tolerance=1e-12)  # rows are projected again


def test_which_mixtures_have_a_blocked_form():
    for name, rule in RULES.items():
        assert has_blocked_form(rule, Environment())
        assert has_blocked_form(rule, HARD) == (name != "replayed")
    every_round = jr.grid(presets.mapped, tau=[0.2])
    refuses = (
        mixture(default_experts(map_every=1)),
        mixture([FROZEN, every_round]),
        mixture([FROZEN, jr.grid(presets.whitened, tau=[0.2])]),
        with_exploration(RULES["rows and maps"], 0.1),  # the mixture ignores the exploration
        RULES["rows and maps"]._replace(structure=None),
    )
    for rule in refuses:
        assert not has_blocked_form(rule, Environment())


def test_blocks_that_do_not_fit_the_tile_of_an_expert_are_refused(problem):
    catalogue, stream = problem()
    start = jax.eval_shape(RULES["rows and maps"].init, *catalogue)
    wide = compiled(partial(simulate_blocked, block=48), "rows and maps")
    with pytest.raises(ValueError, match="block must be a divisor of map_every=16, got 48"):
        jax.eval_shape(wide, start, stream)


def test_over_devices_that_do_not_divide_the_catalogue_experts_keep_no_padding(problem):
    (theta, _), stream = problem(items=39)
    task = jr.Task.from_arrays(theta, stream.queries, stream.labels)
    rule = mixture([GREEDY], alpha=0.1)
    split, whole = jr.simulate(rule, task, devices=8), jr.simulate(rule, task)
    assert (split.form, whole.form) == ("mesh of 8 devices", "blocked")
    np.testing.assert_array_equal(split.trace.item, whole.trace.item)
    same(split.states.extra.rows, whole.states.extra.rows, tolerance=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rows and maps", "rows alone, of slates", "replayed"])
def test_mixtures_with_a_blocked_form_satisfy_the_contract(name):
    """Include a run on eight devices."""
    check_learner(RULES[name])
