"""Scan and blocked form against the algorithms in NumPy, given the same choices."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
import pytest

from jaxret.environments.environment import Environment, simulated_reranker
from jaxret.learners import presets
from jaxret.learners.bandits.perceptrons import banditron
from jaxret.learners.learner import Learner
from jaxret.rules import projections, schedules
from jaxret.simulation.blocked.simulate import simulate_blocked
from jaxret.simulation.scan import scan_rounds
from jaxret.types import Catalogue, Stream
from tests.problems import coming_and_going, same

ITEMS, ROUNDS = 40, 100  # 20 queries, five times each
TAU, ETA = 0.2, 0.02
EPSILON, RHO = 0.2, 0.1

EYE = np.eye(ITEMS)
COEFFICIENTS = {  # of p, the item a, its propensity pi, the reward y and the right items
    "equation 4": lambda p, a, pi, y, right: p - EYE[a] * y / pi,
    "appendix B.2": lambda p, a, pi, y, right: EYE[a] * (1 - y / pi),
    "perceptron": lambda p, a, pi, y, right: EYE[p.argmax()] - EYE[a] * y / pi,
    "likelihood": lambda p, a, pi, y, right: (p - EYE[a]) * (1 if y else -p[a] / (1 - p[a])),
    "gradient": lambda p, a, pi, y, right: p - right / right.sum(),
}
PROJECTIONS = {  # in NumPy, given the lengths of the rows
    "none": lambda theta, length: theta,
    "sphere": lambda theta, length: theta / length,
    "ball": lambda theta, length: theta / np.maximum(1, length),
}
PROPENSITIES = {  # [T], of p [T, I], the available items and the items chosen
    "p": lambda p, here, item: p[np.arange(ROUNDS), item],
    "epsilon": lambda p, here, item: (
        (1 - EPSILON) * (item == p.argmax(axis=1)) + EPSILON / here.sum(axis=1)
    ),
    "certain": lambda p, here, item: item == p.argmax(axis=1),
}


class Case(NamedTuple):
    """A setting, with its estimator and policy in NumPy."""

    name: str
    learner: Learner
    environment: Environment
    c: str  # coefficients
    onto: str  # projection
    pi: str | None  # propensities, if a function of p
    eta: Callable = lambda t: ETA


COMES_AND_GOES = coming_and_going()
NOISE = Environment(noise_rate=RHO)
RERANKER = Environment(reranker=simulated_reranker(accuracy=0.8))
EVERYTHING = coming_and_going(noise_rate=RHO, reranker=RERANKER.reranker)
SPHERE = {"tau": TAU, "eta": ETA, "projection": projections.sphere()}
BALL = SPHERE | {"projection": projections.ball()}
FREE = SPHERE | {"projection": projections.none()}
TAPERED = presets.orag(**SPHERE, schedule=schedules.inverse_sqrt())
GREEDY = presets.greedy(**FREE, schedule=schedules.cosine(rounds=80))
BANDITRON = banditron(**BALL, epsilon=EPSILON)
ONE_ROW = presets.chosen_only(**SPHERE)
TEACHER = presets.full_information(**FREE)


def tapered(t):
    return ETA / np.sqrt(t + 1)


def half_a_cosine(t):
    return ETA * (1 + np.cos(np.pi * min(t / 80, 1))) / 2


CASES = [
    Case("algorithm 1, tapered", TAPERED, NOISE, "equation 4", "sphere", "p", tapered),
    Case("algorithm 2", presets.orag(**BALL, k=4), RERANKER, "equation 4", "ball", None),
    Case("appendix B.2", ONE_ROW, EVERYTHING, "appendix B.2", "sphere", "p"),
    Case("banditron", BANDITRON, COMES_AND_GOES, "perceptron", "ball", "epsilon"),
    Case("greedy", GREEDY, EVERYTHING, "likelihood", "none", "certain", half_a_cosine),
    Case("oracle", TEACHER, Environment(), "gradient", "none", "certain"),
]


class Run(NamedTuple):
    """A case in float64 as NumPy arrays; ``scan`` and ``blocked`` are (state, trace)."""

    case: Case
    catalogue: Catalogue
    stream: Stream
    scan: tuple
    blocked: tuple


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def run(request, problem):
    case = request.param
    with jax.enable_x64(True):
        catalogue, stream = problem(items=ITEMS)
        state = jax.jit(case.learner.init)(*catalogue)

        def finish(how):
            key = jax.random.key(5)
            return jax.jit(lambda s: how(case.learner, s, case.environment, stream, key))(state)

        blocks = partial(simulate_blocked, block=24, tile=8)  # 100 is not a multiple of 24
        both = finish(scan_rounds), finish(blocks)
        return Run(case, *jax.device_get((catalogue, stream, *both)))


def written_in_numpy(run):
    """Compute the final Theta, and p, availability, labels and logits of each round, [T, I]."""
    case, (_, trace), seen = run.case, run.scan, []

    def project(theta):
        length = np.linalg.norm(theta, axis=1, keepdims=True)
        return PROJECTIONS[case.onto](theta, length)

    theta = project(run.catalogue.theta)
    arrives, leaves = jax.device_get((case.environment.arrives, case.environment.leaves))
    for t, query in enumerate(run.stream.order):
        q, here = run.stream.queries[query], run.catalogue.available
        if arrives is not None:
            here = here & (arrives <= t) & (t < leaves)
        z = np.where(here, theta @ q / TAU, -np.inf)
        p = np.exp(z - z.max())
        p /= p.sum()
        right = np.isin(np.arange(ITEMS), run.stream.labels[query]) & here
        c = COEFFICIENTS[case.c](p, trace.item[t], trace.propensity[t], trace.reward[t], right)
        theta = project(theta - case.eta(t) / TAU * np.outer(c, q))
        seen.append((p, here, right, np.where(here, z, 0)))
    return theta, [np.array(x) for x in zip(*seen, strict=True)]


def test_the_scan_is_the_algorithm_written_in_numpy(run):
    theta, (p, here, right, z) = written_in_numpy(run)
    (state, trace), t = run.scan, np.arange(ROUNDS)
    assert state.t == ROUNDS
    np.testing.assert_allclose(state.theta, theta, rtol=1e-9, atol=1e-9)
    assert here[t, trace.item].all()
    np.testing.assert_array_equal(trace.success, right[t, trace.item])
    share = right / np.maximum(right.sum(axis=1, keepdims=True), 1)
    p = np.where(here, p, 1)
    expected = {
        "p_success": (p * right).sum(axis=1),
        "loss": -(np.log(p) * share).sum(axis=1),
        "inverse_p": (here / p).sum(axis=1),
        "logit_label": (z * share).sum(axis=1),
        "logit_sum": z.sum(axis=1),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(trace, name), values, 1e-8, 1e-8, err_msg=name)


def test_the_recorded_propensity_is_that_of_the_draw(run):
    if run.case.pi is None:  # depends on the policy's noise: tests/rules/test_policies.py
        return
    _, (p, here, _, _) = written_in_numpy(run)
    trace = run.scan[1]
    expected = PROPENSITIES[run.case.pi](p, here, trace.item)
    np.testing.assert_allclose(trace.propensity, expected, rtol=1e-9)
    if run.case.pi == "p":
        # The count of an item minus the sum of its p is a martingale: 40 such differences lie
        # within 4.5 standard deviations of 0, plus one whole sample for the rarest item.
        surplus = (np.eye(ITEMS)[trace.item] - p).sum(axis=0)
        assert (np.abs(surplus) <= 4.5 * np.sqrt((p * (1 - p)).sum(axis=0)) + 1).all()


def test_only_noisy_rewards_differ_from_the_truth(run):
    trace = run.scan[1]
    wrong, rate = (trace.reward != trace.success).mean(), run.case.environment.noise_rate or 0
    assert abs(wrong - rate) <= 4 * np.sqrt(rate * (1 - rate) / ROUNDS)


def test_the_blocked_form_is_the_scan(run):
    np.testing.assert_array_equal(run.blocked[1].item, run.scan[1].item)
    same(run.blocked, run.scan, tolerance=1e-9)


def test_draws_of_the_environment_are_independent_of_the_policys(problem):
    catalogue, stream = problem(times=40)
    rule = banditron(**FREE | {"eta": 0.0}, epsilon=0.5)
    environment, key = Environment(noise_rate=0.3), jax.random.key(6)
    state = rule.init(*catalogue)
    run = jax.jit(lambda s: scan_rounds(rule, s, environment, stream, key)[1])
    trace = jax.device_get(run(state))
    wrong, explored = trace.reward != trace.success, trace.propensity < 0.5
    for bits in (wrong[explored], wrong[~explored]):  # 400 rounds each
        assert abs(bits.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / len(bits))
