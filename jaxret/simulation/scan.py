"""A round of a simulation, and a loop over rounds. **Start reading here.**

    slate        <- show(learner, state, ...)            the learner chooses what to show
    state, trace <- learn(learner, state, ..., slate)    the environment responds; then learns

`scan_rounds` defines the simulation: it runs the two halves in a compiled loop, for any learner.
`jaxret.simulation.blocked` computes the same rounds faster. If something outside the program
chooses from the slate (a language model, a judge, a person), the halves are compiled separately
(`jaxret.simulation.selected`):

    slate = jit(show)(...)
    position = ask(slate.items)
    state, trace = jit(learn)(..., slate, position)

Round t uses ``fold_in(key, 2t)`` to show and ``fold_in(key, 2t + 1)`` to respond, so both ways give
the same run for the same choices. If the environment delays feedback, rewrites documents or reloads
the learner, ``state`` is the state of the learner `with_interventions`, whose ``t`` counts the
rounds of the environment.

One round of ``jr.greedy()``, in the order of its calls: this file, `jaxret.learners.presets`
(``greedy``), `jaxret.learners.rank_one` (``init``, ``act``, ``update``), `jaxret.rules.policies`
(``greedy``), `jaxret.environments.environment` (``respond``), `jaxret.rules.estimators`
(``bandit_likelihood``), `jaxret.rules.projections` (``sphere``), with the data of `jaxret.types`:
eight files. Helpers that do what their names say: `jaxret.runtime.over_items` (softmax, argmax,
one-hot), `jaxret.rules.schedules.constant` (factor 1), `jaxret.learners.learner.where_observed`
(keeps the old state if no feedback came, and advances ``t``), `jaxret.simulation.trace.measure`
(measures, changes nothing), `jaxret.learners.confidence.is_calibrated` (False for ``greedy``).

Letters: T rounds, k items shown, I items.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret.environments.environment import (
    Environment,
    available_at,
    labels_at,
    queries_at,
    respond,
    with_interventions,
)
from jaxret.learners.confidence import confidence, is_calibrated
from jaxret.learners.learner import Learner, query_for
from jaxret.simulation.trace import measure, of_item, reported
from jaxret.types import PRNGKey, Slate, State, Stream, Trace


def round_keys(key: PRNGKey, t: Int[Array, "*m"]) -> tuple[PRNGKey, PRNGKey]:
    """Return the keys of `act` and of the environment in round t.

    Args:
      key: key of the whole run.
      t: a round [], or many rounds at once [m].

    Returns:
      two keys, [] or [m] each.
    """
    fold = jax.random.fold_in
    for _ in t.shape:
        fold = jax.vmap(fold, (None, 0))
    return fold(key, 2 * t), fold(key, 2 * t + 1)


def learner_query_at(
    learner: Learner,
    environment: Environment,
    t: Int[Array, ""],
    query: Int[Array, ""],
    stream: Stream,
) -> Any:
    """Return the query of a round in the form that the learner reads.

    Args:
      learner: learner, which reads a vector, or a vector with prior scores.
      environment: environment, which may change the vector.
      t: number of the round.
      query: position of the query in the stream's queries [].
      stream: queries and their priors.
    """
    vector = queries_at(environment, t, query, stream.queries[query])
    return query_for(learner, vector, jax.tree.map(lambda x: x[query], stream.prior))


def show(
    learner: Learner,
    state: State,
    environment: Environment,
    stream: Stream,
    query: Int[Array, ""],
    key: PRNGKey,
) -> Slate:
    """Choose the slate of round ``state.t``.

    Args:
      learner: learner whose `act` is called.
      state: state of the learner, with interventions.
      environment: environment, which decides the available items and changes queries.
      stream: queries and their labels.
      query: position of this round's query in the stream's queries [].
      key: key of the whole run.
    """
    learner = with_interventions(learner, environment, key, labels=stream.labels.shape[1])
    act_key, _ = round_keys(key, state.t)
    available = available_at(environment, state.t, state.available)
    learner_query = learner_query_at(learner, environment, state.t, query, stream)
    return learner.act(state._replace(available=available), learner_query, act_key)


def learn(
    learner: Learner,
    state: State,
    environment: Environment,
    stream: Stream,
    query: Int[Array, ""],
    key: PRNGKey,
    slate: Slate,
    position: Int[Array, ""] | None = None,
    reward: Float[Array, ""] | None = None,
) -> tuple[State, Trace]:
    """Respond to a slate, update the learner, and measure the round.

    Loss and success are measured here, outside the learner; only an oracle is given the labels.

    Args:
      learner: learner whose `update` is called.
      state: state of the learner, with interventions.
      environment: environment, which responds.
      stream: queries and their labels.
      query: position of this round's query in the stream's queries [].
      key: key of the whole run.
      slate: items shown.
      position: position of the used item in the slate []; None: the environment's reranker chooses.
      reward: reward given by a judge [], which may contradict the labels; None: the environment's.

    Returns:
      The next state, and the `Trace` of the round.
    """
    if position is not None:
        environment = environment._replace(reranker=lambda key, slate, labels, query: position)
    learner = with_interventions(learner, environment, key, labels=stream.labels.shape[1])
    _, respond_key = round_keys(key, state.t)
    available = state.available
    labels = labels_at(environment, state.t, query, stream.labels[query])
    choice, feedback, success = respond(environment, respond_key, slate, labels, query)
    if reward is not None:
        feedback = feedback._replace(reward=reward)
    before = state._replace(available=available_at(environment, state.t, available))
    learner_query = learner_query_at(learner, environment, state.t, query, stream)
    logits = None if learner.logits is None else learner.logits(before, learner_query)
    p = confidence(learner, before, learner_query) if is_calibrated(learner) else None
    seen = feedback._replace(labels=labels) if learner.facts.oracle else feedback
    new = learner.update(before, learner_query, choice, seen)
    trace = Trace(
        **choice._asdict(),
        reward=reported(feedback),
        success=success,
        **measure(logits, labels)._asdict(),
        confidence=of_item(p, choice.item),
    )
    return new._replace(available=available), trace


def scan_rounds(
    learner: Learner, state: State, environment: Environment, stream: Stream, key: PRNGKey
) -> tuple[State, Trace]:
    """Simulate a stream round by round.

    Args:
      learner: any learner.
      state: state from ``learner.init`` (of the learner `with_interventions`) or an earlier call;
        ``state.t`` is the first round.
      environment: environment, which responds.
      stream: queries, labels, and the order of these T rounds. The first -1 in ``order`` ends the
        stream, so that all chunks of a run have one shape.
      key: random key of the whole run; each round folds in its number.

    Returns:
      The last state, and a `Trace` with fields [T], 0 after the end of the stream.
    """
    order = stream.order

    @partial(jax.jit, inline=True)  # traced once for the shapes and the loop
    def run_round(state, query):
        slate = show(learner, state, environment, stream, query, key)
        return learn(learner, state, environment, stream, query, key, slate)

    def record(i, carry):
        state, trace = carry
        state, line = run_round(state, order[i])
        return state, jax.tree.map(lambda whole, one: whole.at[i].set(one), trace, line)

    line = jax.eval_shape(run_round, state, jax.ShapeDtypeStruct((), order.dtype))[1]
    blank = jax.tree.map(lambda one: jnp.zeros((len(order), *one.shape), one.dtype), line)
    rounds = jnp.argmin(jnp.append(order, -1))  # the position of the first -1
    return lax.fori_loop(0, rounds, record, (state, blank))
