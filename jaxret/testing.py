"""A test of any learner against the contract of `jaxret.learners.learner`.

    check_learner(my_learner(tau=0.1, eta=0.01))

It returns nothing, or raises an AssertionError that names the violated property and the error.
The learner runs in float64, because in float32 rounding can change a draw. Results that must agree
exactly are compared bit for bit, others up to rounding.

Letters: I items, d width, T rounds, N queries, k items shown.
"""

from functools import partial
from operator import itemgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxret.environments.environment import Environment, available_at, simulated_reranker
from jaxret.learners.learner import Learner, query_for, require_learner
from jaxret.learners.rank_one import rule_of
from jaxret.rules.estimators import expected_coefficients
from jaxret.runtime import sharding
from jaxret.simulation.blocked.simulate import (
    any_block,
    has_blocked_form,
    simulate_blocked,
    simulate_on_mesh,
)
from jaxret.simulation.scan import scan_rounds
from jaxret.types import Catalogue, Choice, Feedback, Prior, PRNGKey, Stream

_DEVICES = (8,)  # numbers of devices compared with one device, if there are as many
_TOLERANCE = 1e-9  # relative, in float64
_DRAWS = 4096  # draws from the policy


def check_learner(
    learner: Learner,
    *,
    items: int = 24,
    width: int = 8,
    rounds: int = 64,
    key: PRNGKey | None = None,
) -> None:
    """Test a learner on a small problem; this takes some seconds, nearly all of it compilation.

    For every learner, including wrapped ones, it tests that the state keeps its shapes and types
    and counts its rounds; `act` and `update` compile once; the items shown, their propensities and
    `Learner.probabilities` agree, by draws from the policy after the run; only oracles read labels;
    a round without feedback changes nothing but ``t``; seeds give the same result under vmap and
    one by one; a run cut in two equals the uncut run bit for bit; absent items are never shown and
    their rows do not change. For a rank-one learner it also tests that an estimator declared
    unbiased is unbiased, that the blocked form equals the scan, and that 8 devices give the result
    of one (skipped with fewer devices).

    Args:
      learner: the learner under test.
      items: I, rounded up to a multiple of 8.
      width: d.
      rounds: T.
      key: random key of the problem and the run; None: a fixed key.

    Raises:
      AssertionError: if a property is violated.
      ValueError: if ``learner`` is not a learner, such as a preset that was not called.
    """
    require_learner(learner)
    rule = rule_of(learner)
    estimator = None if rule is None else rule.estimator
    key = jax.random.key(0) if key is None else key
    with jax.enable_x64(True):
        case = _make_case(learner, items, width, rounds, key)
        update, traces = _counted(learner.update)
        _state_keeps_its_types(case, update)
        _compiles_once(case, update, traces)
        _rounds_are_counted(case, update)
        _says_whether_it_is_an_oracle(case)
        if not learner.facts.oracle:
            _labels_are_not_read(case, update)
        _unobserved_rounds_change_nothing(case, update)
        if estimator is not None and estimator.unbiased:
            _claim_of_no_bias_holds(case)
        scan = jax.jit(partial(run, case, scan_rounds))  # traced once for both programs
        straight = quick_jit(scan)
        order, half = case.stream.order, rounds // 2
        # -1 ends a stream, so one program serves all lengths
        early, late = np.full((2, rounds), -1, np.int32)
        early[:half], late[: rounds - half] = order[:half], order[half:]
        whole = straight(case.state, order, 0)
        first = straight(case.state, early, 0)
        second = straight(first[0], late, 0)
        _cut_runs_are_the_same(case, whole, first, second)
        _absent_items_rest(case, whole, first)
        _propensities_are_those_of_the_policy(case, whole[0])
        _seeds_do_not_mix(case, scan, [whole, straight(case.state, order, 1)])
        if has_blocked_form(learner, case.environment):
            _blocks_and_devices_do_not_matter(case, whole)


class Case(NamedTuple):
    """A small problem with noise, a reranker, and items that come, go, return or never exist."""

    learner: Learner
    state: tuple
    environment: Environment
    stream: Stream
    key: PRNGKey


def _make_case(learner: Learner, items: int, width: int, rounds: int, key: PRNGKey) -> Case:
    """Make a problem of I items (rounded up to a multiple of 8); under x64 in float64."""
    # Draw with NumPy and compute the rest in one program, since every JAX call compiles its own.
    rng, n = np.random.default_rng(np.asarray(jax.random.key_data(key))), 16
    theta, queries = _unit_rows(rng, items, width), _unit_rows(rng, n, width)

    def start(theta):
        catalogue = Catalogue(theta=theta, available=jnp.arange(items) % 6 != 5)
        return learner.init(*sharding.padded(catalogue, 8))

    dtype = jnp.result_type(float)
    # NumPy arrays are split over devices without compiling.
    state = jax.device_get(quick_jit(start)(theta.astype(dtype)))
    ids = np.arange(len(state.theta))
    arrives = np.select([ids % 6 == 1, ids % 6 == 2], [rounds // 2, 3 * rounds // 4], 0)
    leaves = np.select([ids % 6 == 3, ids % 6 == 2], [rounds // 2, rounds // 4], rounds)
    label = 5 * np.arange(n) % items
    second = np.where(label % 2 == 0, (label + 1) % items, -1)
    stream = Stream(
        queries=jnp.asarray(queries, dtype),
        labels=jnp.asarray(np.stack([label, second], axis=1), jnp.int32),
        order=jnp.asarray(7 * np.arange(rounds) % n, jnp.int32),
        prior=_prior(rng, learner.facts.prior_width, n, items, dtype),
    )
    return Case(
        learner=learner,
        state=state,
        environment=Environment(
            noise_rate=0.1,
            reranker=simulated_reranker(accuracy=0.8),
            arrives=jnp.asarray(arrives),
            leaves=jnp.asarray(leaves),
        ),
        stream=jax.device_get(stream),  # rows of NumPy arrays are read without compiling
        key=jax.random.clone(key),  # leaves the caller's key unused
    )


def _prior(rng, width, n, items, dtype):
    """Score some items for each of n queries; the rest is padding."""
    if not width:
        return None
    scored = min(width, items // 3)
    chosen = rng.permuted(np.tile(np.arange(items), (n, 1)), axis=1)[:, :scored]
    padding = ((0, 0), (0, width - scored))
    rows = np.pad(chosen, padding, constant_values=-1)
    scores = np.pad(rng.uniform(size=chosen.shape), padding)
    return Prior(jnp.asarray(rows, jnp.int32), jnp.asarray(scores, dtype))


def _unit_rows(rng, n, width):
    rows = rng.normal(size=(n, width))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def quick_jit(fn):
    """Compile with little optimisation, which halves the time of a check on CPU."""
    cpu = jax.default_backend() == "cpu"
    return jax.jit(fn, compiler_options={"xla_backend_optimization_level": 0} if cpu else None)


def run(case: Case, form, state, order, seed):
    """Simulate one seed of a case, from a state, by one form.

    Args:
      case: learner, environment and queries.
      form: (learner, state, environment, stream, key) -> (state, trace), such as `scan_rounds`.
      state: state before the first round.
      order: positions of the queries [T], -1 where the stream has ended.
      seed: number folded into the key of the case.

    Returns:
      The last state, and the trace [T].
    """
    stream = jax.tree.map(jnp.asarray, case.stream._replace(order=order))
    key = jax.random.fold_in(case.key, seed)
    return form(case.learner, state, case.environment, stream, key)


def _one_update(case, update, reward, labels, observed=True):
    dtype = case.stream.queries.dtype
    choice = Choice(item=jnp.asarray(0, jnp.int32), propensity=jnp.asarray(0.5, dtype))
    feedback = Feedback(jnp.asarray(reward, dtype), jnp.asarray(observed), labels)
    return update(case.state, learner_query(case, 0), choice, feedback)


def learner_query(case: Case, query: int):
    """Return a query of the stream in the form that the learner reads."""
    prior = jax.tree.map(itemgetter(query), case.stream.prior)
    return query_for(case.learner, case.stream.queries[query], prior)


def _counted(fn):
    """Compile a function, and return it with a list that grows by an entry at each tracing."""
    traces = []

    def traced(*args):
        traces.append(args)
        return fn(*args)

    return quick_jit(traced), traces


def _state_keeps_its_types(case, update):
    try:
        after = _one_update(case, partial(jax.eval_shape, update), 1.0, case.stream.labels[0])
    except TypeError as error:
        hint = " an estimator that reads obs.target must say bandit=False"
        _fail(case, f"update cannot be called: {error}{hint if 'None' in str(error) else ''}")
    describe = partial(jax.tree.map, lambda x: f"{x.dtype}{list(x.shape)}")
    before, after = describe(case.state), describe(after)
    if before != after:
        _fail(case, f"update turns a state {before} into {after}")


def _compiles_once(case, update, update_traces):
    act, act_traces = _counted(case.learner.act)
    state, stream = case.state, case.stream
    for t in range(2):
        key = jax.random.fold_in(case.key, t)
        slate = jax.eval_shape(act, state, learner_query(case, t), key)
        choice = Choice(*(jnp.ones((), shown.dtype) for shown in slate))
        reward = jnp.asarray(t, stream.queries.dtype)
        feedback = Feedback(reward, jnp.asarray(True), stream.labels[t])
        state = update(state, learner_query(case, t), choice, feedback)
    for name, traces in {"act": act_traces, "update": update_traces}.items():
        if len(traces) != 1:
            _fail(case, f"{name} was compiled {len(traces)} times for 2 calls with the same shapes")


def _rounds_are_counted(case, update):
    after = _one_update(case, update, 1.0, case.stream.labels[0])
    if int(after.t) != int(case.state.t) + 1:
        _fail(case, f"update turns t = {case.state.t} into {after.t}, and keys come from t")


def _says_whether_it_is_an_oracle(case):
    rule, oracle = rule_of(case.learner), case.learner.facts.oracle
    if rule is not None and oracle == rule.estimator.bandit:
        bandit = f"bandit={rule.estimator.bandit}"
        _fail(case, f"oracle={oracle} with an estimator that says {bandit}")


def _unobserved_rounds_change_nothing(case, update):
    expected = case.state._replace(t=int(case.state.t) + 1)
    for reward in (0.0, 1.0):
        got = _one_update(case, update, reward, case.stream.labels[0], observed=False)
        if gap := _gap(got, expected):
            _fail(case, f"a round without feedback moves the state by {gap:.1e}")


def _labels_are_not_read(case, update):
    right = case.stream.labels[0]
    for reward in (0.0, 1.0):
        expected = _one_update(case, update, reward, right)
        for labels in (np.where(right >= 0, right + 1, -1), np.full_like(right, -1)):
            got = _one_update(case, update, reward, labels)
            if gap := _gap(got, expected):
                _fail(case, f"update reads labels: others move the state by {gap:.1e}")


def _seeds_do_not_mix(case, scan, alone):
    # Leaves of the state that differ between seeds have an axis from the start. Otherwise JAX finds
    # out while it traces the loop, and traces it again.
    finals = jax.device_get([state for state, _ in alone])
    axes = jax.tree.map(lambda *x: None if np.array_equal(*x) else 0, *finals)

    def start(axis, x):
        return x if axis is None else np.stack([x] * len(alone))

    state = jax.tree.map(start, axes, case.state, is_leaf=lambda x: x is None)
    seeds = quick_jit(jax.vmap(scan, (axes, None, 0)))
    together = jax.device_get(seeds(state, case.stream.order, np.arange(len(alone))))
    for seed, expected in enumerate(alone):
        one = jax.tree.map(itemgetter(seed), together)
        _agree(case, f"seed {seed} under vmap and alone", one, expected)


def _cut_runs_are_the_same(case, whole, first, second):
    half = len(whole[1].item) // 2

    def joined(early, late):
        return np.concatenate([early[:half], late[: len(late) - half]])

    trace = jax.tree.map(joined, *jax.device_get((first[1], second[1])))
    what = "a run cut in two and a straight one"
    _agree(case, what, (second[0], trace), whole, tolerance=0.0)


def _absent_items_rest(case, whole, first):
    rounds = len(whole[1].item)
    half = rounds // 2
    at = jax.vmap(lambda t: available_at(case.environment, t, case.state.available))
    available = np.asarray(at(np.arange(rounds)))  # [T, I]
    absent = ~available[np.arange(rounds), whole[1].item]
    if absent.any():
        _fail(case, f"absent items were shown in {absent.sum()} of {rounds} rounds")
    steps = [(case.state, first[0], available[:half]), (first[0], whole[0], available[half:])]
    for before, after, when in steps:
        moved = np.abs(np.asarray(after.theta) - before.theta)[~when.any(axis=0)].max()
        if not moved <= _TOLERANCE:  # a projection may round
            _fail(case, f"rows of absent items moved by {moved:.1e}")


def _propensities_are_those_of_the_policy(case, state):
    """Draw from the policy, and compare frequencies with the learner's probabilities."""
    learner, query = case.learner, learner_query(case, 0)

    def draws(state, query, key):
        keys = jax.random.split(key, _DRAWS)
        slates = jax.vmap(learner.act, (None, None, 0))(state, query, keys)
        return slates, learner.probabilities and learner.probabilities(state, query)

    slate, p = jax.device_get(quick_jit(draws)(state, query, jax.random.clone(case.key)))
    if np.isnan(slate.propensity).any():  # declared unknown
        return
    items = len(case.state.theta)
    weights = np.zeros((_DRAWS, items))  # 1[i shown] / propensity, whose mean is 1
    np.put_along_axis(weights, slate.items, 1 / slate.propensity, axis=1)
    shown = (weights > 0).sum(axis=0) >= 100
    error = weights.std(axis=0) / _DRAWS**0.5
    off = np.abs(weights.mean(axis=0) - 1)
    if (wrong := shown & ~(off <= 6 * error + _TOLERANCE)).any():
        item = int(wrong.argmax())
        share = (weights[:, item] > 0).mean()
        _fail(
            case,
            f"item {item} was shown in a share {share:.3f} of {_DRAWS} draws, with a mean "
            f"propensity of {share / weights[:, item].mean():.3f}",
        )
    if p is None:
        return
    first = slate.items[:, 0]
    share = np.bincount(first, minlength=items) / _DRAWS
    error = np.sqrt(np.maximum(p * (1 - p), 1 / _DRAWS) / _DRAWS)
    if not (np.abs(share - p) <= 6 * error).all():
        item = int(np.nan_to_num(np.abs(share - p) / error, nan=np.inf).argmax())
        _fail(
            case,
            f"item {item} was shown in a share {share[item]:.3f} of {_DRAWS} draws, and "
            f"Learner.probabilities says {p[item]:.3f}",
        )
    gap = np.abs(slate.propensity[:, 0] - p[first])
    if slate.items.shape[1] == 1 and not gap.max() <= _TOLERANCE:
        item = int(first[gap.argmax()])
        _fail(
            case,
            f"item {item} was shown with a propensity of {slate.propensity[gap.argmax(), 0]:.3f}, "
            f"and Learner.probabilities says {p[item]:.3f}",
        )


def _claim_of_no_bias_holds(case):
    rule = rule_of(case.learner)
    assert rule is not None
    estimator = rule.estimator

    def bias(target):
        # An estimator for noisy rewards is declared unbiased at its own noise rate.
        probs = jax.nn.softmax(3 * case.state.theta @ case.stream.queries[0])
        got = expected_coefficients(estimator, probs, target, noise_rate=estimator.noise_rate)
        return jnp.abs(got - probs.at[target].add(-1.0)).max()

    largest = quick_jit(bias)
    for target in (0, 7):
        if not (off := float(largest(target))) <= _TOLERANCE:
            _fail(case, f"estimator {estimator.name!r} claims no bias and has one of {off:.1e}")


def _blocks_and_devices_do_not_matter(case, whole):
    # 64 rounds are not a multiple of 24, so the last block is padded.
    blocks = {"block": 24 if any_block(case.learner) else None}
    forms = {"the blocked form": partial(simulate_blocked, **blocks)}
    for n in _DEVICES:
        if n <= len(jax.devices()):
            mesh = sharding.make_mesh(item=n)
            forms[f"the blocked form on {n} devices"] = partial(
                simulate_on_mesh, mesh=mesh, **blocks
            )
    for name, form in forms.items():
        got = quick_jit(partial(run, case, form))(case.state, case.stream.order, 0)
        _agree(case, f"{name} and the plain scan", got, whole)


def _agree(case, what, got, expected, tolerance=_TOLERANCE):
    others = int((np.asarray(got[1].item) != np.asarray(expected[1].item)).sum())
    if others:
        _fail(case, f"{what} chose different items in {others} of {len(expected[1].item)} rounds")
    gap = np.maximum(_gap(got[0], expected[0]), _gap(*_known(got[1], expected[1])))
    if not gap <= tolerance:
        _fail(case, f"{what} differ by {gap:.1e}, more than {tolerance:.0e}")


def _known(*traces):
    """Replace NaN by 0 where both traces are NaN: without softmax, or unknown propensities."""

    def known(a, b):
        return np.where(np.isnan(a) & np.isnan(b), 0, a)

    return [jax.tree.map(known, *pair) for pair in (traces, traces[::-1])]


def _gap(got, expected) -> float:
    """Return the largest difference of two trees, relative to the largest entry of each leaf."""

    def gap(a, b):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        return np.abs(a - b).max() / max(1.0, np.abs(b).max())

    gaps = jax.tree.leaves(jax.tree.map(gap, got, expected))
    return float(np.max(gaps))  # NaN if any gap is, which then exceeds every tolerance


def _fail(case, sentence):
    raise AssertionError(f"learner {case.learner.name!r}: {sentence}")
