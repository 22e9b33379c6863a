"""One call that holds a new learner to what every learner promises.

    check_learner(my_rule(tau=0.1, eta=0.01))

It returns nothing, or raises an AssertionError whose sentence says which promise is broken and
by how much. Programs that must agree but for rounding are compared in float64, because in
float32 a rounding can flip a draw; what must agree bit for bit is compared bit for bit.

Letters: I items, d width, T rounds.
"""

from functools import partial
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np

from jaxret.environments.environment import available_at
from jaxret.learners.learner import Learner
from jaxret.rules.estimators import expected_coefficients
from jaxret.runtime import sharding
from jaxret.simulation.blocked.simulate import (
    has_blocked_form,
    parts_of_all,
    simulate_blocked,
    simulate_on_mesh,
)
from jaxret.simulation.scan import scan_rounds
from jaxret.testing_case import make_case, quick_jit, run
from jaxret.types import Choice, Feedback, PRNGKey

_DEVICES = (8,)  # compared with one; those that do not exist are left out
_TOLERANCE = 1e-9  # relative, in float64


def check_learner(
    learner: Learner,
    *,
    items: int = 24,
    width: int = 8,
    rounds: int = 64,
    key: PRNGKey | None = None,
) -> None:
    """Checks a learner on a small problem; takes some seconds, nearly all of it compilation.

    Every learner, wrapped ones too: the state keeps its shapes and types and counts its rounds,
    `act` and `update` compile once, labels are not read by one that learns from bits, a round
    without an answer changes nothing, seeds under vmap are the seeds one by one, a run cut in two
    is the same bit for bit, tools that are absent are never chosen and their rows stay. Of a
    rank-one learner also: an estimator that claims to be unbiased is, and where it has a blocked
    form that is the scan, and 8 devices do what 1 does (left out where there are fewer). Rows in
    bfloat16 are rounded at a block's end: there, the form is held to the scan in blocks of one
    round, or with experience replay, of which the scan rounds twice, the devices to the form.

    Args:
      learner: the rule under test.
      items: I, rounded up to a multiple of 8.
      width: d.
      rounds: T.
      key: of the problem and the run; a fixed one if None.

    Raises:
      AssertionError: which promise is broken, and by how much.
    """
    rule = learner.rule
    estimator = None if rule is None else rule.estimator
    key = jax.random.key(0) if key is None else key
    make = partial(make_case, learner, items, width, rounds, key)
    case = make()
    _state_keeps_its_types(case)
    update = _compiles_once(case)
    _rounds_are_counted(case, update)
    _says_whether_it_is_an_oracle(case)
    if not learner.oracle:
        _labels_are_not_read(case, update)
    _unobserved_rounds_change_nothing(case, update)
    with jax.enable_x64(True):
        case = make()
        if estimator is not None and estimator.unbiased:
            _claim_of_no_bias_holds(case)
        straight = quick_jit(partial(run, case, scan_rounds))
        order, half = case.stream.order, rounds // 2
        early, late = np.full((2, rounds), -1, np.int32)  # -1 ends a stream: one program for all
        early[:half], late[: rounds - half] = order[:half], order[half:]
        whole = straight(case.state, order, 0)
        first = straight(case.state, early, 0)
        second = straight(first[0], late, 0)
        _cut_runs_are_the_same(case, whole, first, second)
        _absent_tools_rest(case, whole, first)
        _seeds_do_not_mix(case, straight)
        if has_blocked_form(learner, case.environment):
            _blocks_and_devices_do_not_matter(case, whole)


def _one_update(case, update, reward, labels, observed=True):
    dtype = case.stream.queries.dtype
    choice = Choice(item=jnp.asarray(0, jnp.int32), propensity=jnp.asarray(0.5, dtype))
    feedback = Feedback(jnp.asarray(reward, dtype), jnp.asarray(observed), labels)
    return update(case.state, case.stream.queries[0], choice, feedback)


def _state_keeps_its_types(case):
    step = partial(_one_update, case, case.learner.update)
    try:
        after = jax.eval_shape(step, 1.0, case.stream.labels[0])
    except TypeError as error:
        hint = (
            "an estimator that reads obs.target must say bandit=False"
            if "None" in str(error)
            else ""
        )
        _fail(case, f"update cannot be called: {error} {hint}".strip())
    describe = partial(jax.tree.map, lambda x: f"{x.dtype}{list(x.shape)}")
    before, after = describe(case.state), describe(after)
    if before != after:
        _fail(case, f"update turns a state {before} into {after}")


def _compiles_once(case):
    calls = {"act": 0, "update": 0}

    def counted(name, fn):
        def traced(*args):
            calls[name] += 1
            return fn(*args)

        return quick_jit(traced)

    act, update = counted("act", case.learner.act), counted("update", case.learner.update)
    state, stream = case.state, case.stream
    for t in range(2):
        slate = act(state, stream.queries[t], jax.random.fold_in(case.key, t))
        choice = Choice(*(jnp.asarray(np.asarray(shown)[0]) for shown in slate))
        reward = jnp.asarray(t, stream.queries.dtype)
        feedback = Feedback(reward, jnp.asarray(True), stream.labels[t])
        state = update(state, stream.queries[t], choice, feedback)
    for name, count in calls.items():
        if count != 1:
            _fail(case, f"{name} was compiled {count} times for 2 calls with the same shapes")
    return update


def _rounds_are_counted(case, update):
    after = _one_update(case, update, 1.0, case.stream.labels[0])
    if int(after.t) != int(case.state.t) + 1:
        _fail(case, f"update turns t = {case.state.t} into {after.t}, and keys come from t")


def _says_whether_it_is_an_oracle(case):
    rule = case.learner.rule
    if rule is not None and case.learner.oracle == rule.estimator.bandit:
        bandit = f"bandit={rule.estimator.bandit}"
        _fail(case, f"oracle={case.learner.oracle} with an estimator that says {bandit}")


def _unobserved_rounds_change_nothing(case, update):
    expected = case.state._replace(t=int(case.state.t) + 1)
    for reward in (0.0, 1.0):
        got = _one_update(case, update, reward, case.stream.labels[0], observed=False)
        if gap := _gap(got, expected):
            _fail(case, f"a round without an answer moves the state by {gap:.1e}")


def _labels_are_not_read(case, update):
    right = case.stream.labels[0]
    for reward in (0.0, 1.0):
        expected = _one_update(case, update, reward, right)
        for labels in (np.where(right >= 0, right + 1, -1), np.full_like(right, -1)):
            got = _one_update(case, update, reward, labels)
            if gap := _gap(got, expected):
                _fail(case, f"update reads labels: others move the state by {gap:.1e}")


def _seeds_do_not_mix(case, straight):
    seeds = quick_jit(jax.vmap(partial(run, case, scan_rounds), (None, None, 0)))
    together = jax.device_get(seeds(case.state, case.stream.order, np.arange(2)))
    for seed in range(2):
        alone = straight(case.state, case.stream.order, seed)
        mine = jax.tree.map(itemgetter(seed), together)
        _agree(case, f"seed {seed} under vmap and alone", mine, alone)


def _cut_runs_are_the_same(case, whole, first, second):
    half = len(whole[1].item) // 2

    def joined(early, late):
        return np.concatenate([early[:half], late[: len(late) - half]])

    trace = jax.tree.map(joined, *jax.device_get((first[1], second[1])))
    what = "a run cut in two and a straight one"
    _agree(case, what, (second[0], trace), whole, tolerance=0.0)


def _absent_tools_rest(case, whole, first):
    rounds = len(whole[1].item)
    half = rounds // 2
    here = quick_jit(jax.vmap(lambda t: available_at(case.environment, t, case.state.available)))
    there = np.asarray(here(np.arange(rounds)))  # [T, I]
    absent = ~there[np.arange(rounds), whole[1].item]
    if absent.any():
        _fail(case, f"absent tools were chosen in {absent.sum()} of {rounds} rounds")
    steps = [(case.state, first[0], there[:half]), (first[0], whole[0], there[half:])]
    for before, after, when in steps:
        moved = np.abs(np.asarray(after.theta) - before.theta)[~when.any(axis=0)].max()
        if not moved <= _TOLERANCE:  # a projection may round
            _fail(case, f"rows of absent tools moved by {moved:.1e}")


def _claim_of_no_bias_holds(case):
    estimator = case.learner.rule.estimator

    def bias(target):
        # What an estimator for noisy bits claims, it claims at the rate that it was built for.
        probs = jax.nn.softmax(3 * case.state.theta @ case.stream.queries[0])
        got = expected_coefficients(estimator, probs, target, noise_rate=estimator.noise_rate)
        return jnp.abs(got - probs.at[target].add(-1.0)).max()

    largest = quick_jit(bias)
    for target in (0, 7):
        if not (off := float(largest(target))) <= _TOLERANCE:
            _fail(case, f"estimator {estimator.name!r} claims no bias and is off by {off:.1e}")


def _blocks_and_devices_do_not_matter(case, whole):
    # The 64 rounds are no multiple of 24: the last block is padded. A map has blocks of its own.
    found = parts_of_all(case.learner)
    blocks = {"block": None if any(rule.query_map is not None for rule, _ in found) else 24}
    blocked, against = partial(simulate_blocked, **blocks), "the plain scan"
    if any(rule.rounding is not None for rule, _ in found):
        if any(replay is not None for _, replay in found):  # the scan rounds twice a round
            whole = quick_jit(partial(run, case, blocked))(case.state, case.stream.order, 0)
            against = "the blocked form"
        else:  # rounded where the scan rounds
            blocks = {"block": 1, "tile": 1}
    forms = {"the blocked form": partial(simulate_blocked, **blocks)}
    for n in _DEVICES:
        if n <= len(jax.devices()):
            mesh = sharding.make_mesh(item=n)
            forms[f"the blocked form on {n} devices"] = partial(
                simulate_on_mesh, mesh=mesh, **blocks
            )
    for name, form in forms.items():
        got = quick_jit(partial(run, case, form))(case.state, case.stream.order, 0)
        _agree(case, f"{name} and {against}", got, whole)


def _agree(case, what, got, expected, tolerance=_TOLERANCE):
    others = int((np.asarray(got[1].item) != np.asarray(expected[1].item)).sum())
    if others:
        _fail(case, f"{what} chose different items in {others} of {len(expected[1].item)} rounds")
    gap = np.maximum(_gap(got[0], expected[0]), _gap(*_known(got[1], expected[1])))
    if not gap <= tolerance:
        _fail(case, f"{what} differ by {gap:.1e}, more than {tolerance:.0e}")


def _known(*traces):
    """Two traces, with 0 where both say NaN: no softmax, or a propensity that is not known."""

    def known(a, b):
        return np.where(np.isnan(a) & np.isnan(b), 0, a)

    return [jax.tree.map(known, *pair) for pair in (traces, traces[::-1])]


def _gap(got, expected) -> float:
    """Largest difference of two trees, relative to the largest entry of each leaf."""

    def gap(a, b):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        return np.abs(a - b).max() / max(1.0, np.abs(b).max())

    gaps = jax.tree.leaves(jax.tree.map(gap, got, expected))
    return float(np.max(gaps))  # NaN if any is: it then exceeds every tolerance


def _fail(case, sentence):
    raise AssertionError(f"learner {case.learner.name!r}: {sentence}")
