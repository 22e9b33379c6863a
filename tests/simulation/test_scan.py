"""Half rounds with host code in between equal the same rounds in one program."""

import inspect
import pkgutil
import re
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxret.environments.environment import Environment
from jaxret.learners import presets
from jaxret.rules import projections
from jaxret.simulation import scan
from jaxret.simulation.scan import learn, scan_rounds, show
from jaxret.types import Stream

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
    keys = jax.random.split(jax.random.key(2), 2)
    theta = jax.random.normal(keys[0], (9, 4))
    queries = jax.random.normal(keys[1], (5, 4))
    order = jnp.asarray([3, 1, 4, 1, 0, 2, 2, 4, 3, 0])
    stream = Stream(queries=queries, labels=jnp.arange(5)[:, None], order=order)
    environment = Environment(noise_rate=0.2, arrives=jnp.where(jnp.arange(9) % 4 == 3, 5, 0))
    key = jax.random.key(7)

    state = RULE.init(theta, jnp.ones(9, bool))
    inside = environment._replace(reranker=by_query)
    end, trace = scan_rounds(RULE, state, inside, stream, key)

    first, second = jax.jit(show, static_argnums=0), jax.jit(learn, static_argnums=0)
    lines = []
    for query in order:
        slate = first(RULE, state, environment, stream, query, key)
        position = int(query) % 3  # on the host
        state, line = second(RULE, state, environment, stream, query, key, slate, position)
        lines.append(line)
    together = jax.tree.map(lambda *x: jnp.stack(x), *lines)
    np.testing.assert_array_equal(together.item, trace.item)
    for ours, theirs in zip((*together, state.theta), (*trace, end.theta), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert len(set(trace.item.tolist())) > 2
