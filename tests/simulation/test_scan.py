"""Half rounds with host code in between, and selectors outside of the program."""

import inspect
import pkgutil
import re
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jaxret as jr
from jaxret.environments.environment import Environment
from jaxret.learners import presets
from jaxret.rules import projections
from jaxret.simulation import scan
from jaxret.simulation.scan import learn, scan_rounds, show
from jaxret.types import Stream
from tests.problems import make_task

RULE = presets.orag(tau=0.3, eta=0.02, k=3, projection=projections.ball())


def by_query(key, slate, labels, query):
    return query % 3


def test_the_docstring_names_the_files_of_a_round():
    assert scan.__doc__ is not None
    paragraph = scan.__doc__.partition("One round of")[2].partition("Letters:")[0]
    named = [scan, *map(pkgutil.resolve_name, re.findall(r"`(jaxret[\w.]+)`", paragraph))]
    files = {inspect.getsourcefile(inspect.unwrap(one)) for one in named}
    run = set()
    greedy, one = presets.greedy(), jnp.zeros(1, jnp.int32)
    stream = Stream(queries=jnp.ones((1, 4)), labels=one[None], order=one)

    def note(frame, event, value):
        code = frame.f_code
        if not code.co_name.startswith("__"):  # jax compares cached keys of other programs
            run.add(code.co_filename)

    sys.setprofile(note)
    try:
        given = greedy.init(jnp.eye(4)), Environment(), stream, jax.random.key(0)
        jax.eval_shape(partial(scan_rounds, greedy), *given)
    finally:
        sys.setprofile(None)
    assert {file for file in run if "/jaxret/" in file} <= files


def test_rounds_answered_from_outside_are_those_of_the_program():
    rng = np.random.default_rng(2)
    theta, queries = (jnp.asarray(rng.normal(size=(n, 4)), jnp.float32) for n in (9, 5))
    order = jnp.asarray([3, 1, 4, 1, 0, 2, 2, 4, 3, 0])
    stream = Stream(queries, labels=jnp.asarray(np.arange(5)[:, None]), order=order)
    arrives = jnp.asarray(np.where(np.arange(9) % 4 == 3, 5, 0))
    environment, key = Environment(noise_rate=0.2, arrives=arrives), jax.random.key(7)

    state = jax.jit(RULE.init)(theta, np.ones(9, bool))
    inside = environment._replace(reranker=by_query)
    end, trace = jax.jit(lambda: scan_rounds(RULE, state, inside, stream, key))()

    first, second = jax.jit(show, static_argnums=0), jax.jit(learn, static_argnums=0)
    lines = []
    for query in np.asarray(order):
        slate = first(RULE, state, environment, stream, query, key)
        position = int(query) % 3  # on the host
        state, line = second(RULE, state, environment, stream, query, key, slate, position)
        lines.append(line)
    together = jax.tree.map(lambda *x: np.stack(x), *lines)
    np.testing.assert_array_equal(together.item, trace.item)
    for ours, theirs in zip((*together, state.theta), (*trace, end.theta), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert len(set(trace.item.tolist())) > 2


TASK = make_task()
SEEDS = (0, 1)
ORDERS = jr.stream_orders(TASK, 1, SEEDS)[:, :20]


def played(pick):
    """Return the trace of twenty rounds in chunks of eight, and the selector's inputs."""
    calls = []

    def select(queries, items):
        calls.append((np.array(queries), np.array(items)))
        return pick(items)

    learner = jr.orag(tau=0.3, eta=0.02, k=3)
    run = jr.simulate(learner, TASK, rounds=20, seeds=SEEDS, select=select, chunk=8)
    assert run.form == "round by round, selected outside"
    queries, items = (np.stack(parts, axis=1) for parts in zip(*calls, strict=True))
    return run.trace, queries, items


def test_the_selector_is_called_in_every_round_and_its_choice_is_used():
    for place in (0, 2):
        trace, queries, items = played(lambda items, place=place: np.full(len(items), place))
        np.testing.assert_array_equal(queries, ORDERS)
        np.testing.assert_array_equal(trace.item, items[..., place])


def test_the_reward_is_the_selectors_where_it_gives_one():
    rewards = np.array([1.0, 0.0], np.float32)
    trace, *_ = played(lambda items: (np.zeros(len(items), int), rewards))
    np.testing.assert_array_equal(trace.reward, np.repeat(rewards[:, None], 20, axis=1))


def test_the_selector_is_shown_tools_ranked_with_the_prior_scores():
    scores = np.random.default_rng(0).random((60, 12))
    known = make_task(prior=scores)
    first = lambda queries, items: np.zeros(len(items), int)  # noqa: E731
    run = jr.simulate(jr.hybrid(lexical=0.5, k=3), known, rounds=20, select=first)
    best = (known.queries @ known.theta.T + scores).argmax(axis=1)
    np.testing.assert_array_equal(run.trace.item[0], best[run.order[0]])
