"""One round in two halves, what is shown and what is learnt; and many rounds, one after another.

    slate        <- show_slate(learner, state, ...)
    state, trace <- learn(learner, state, ..., slate)

`scan_rounds` runs both inside a compiled program, for any learner. Where something outside of it
chooses from the slate (a language model, a judge, a person), the halves are compiled apart, and the
choice comes in as ``position``:

    slate = jit(show_slate)(...)
    position = ask(slate.items)
    state, trace = jit(learn)(..., slate, position)

Round t uses ``fold_in(key, t)`` either way, so both give the same run for the same choices. Where
the environment delays answers, rewrites documents or reloads the learner, ``state`` is that of the
learner `with_interventions`, whose ``t`` is the environment's round and not the learner's.

Letters: T rounds.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret.environments import environment as world
from jaxret.environments.environment import Environment
from jaxret.learners.learner import Learner
from jaxret.simulation.trace import measure
from jaxret.types import PRNGKey, Slate, State, Stream, Trace


def show_slate(
    learner: Learner,
    state: State,
    environment: Environment,
    stream: Stream,
    query: Int[Array, ""],
    key: PRNGKey,
) -> Slate:
    """The slate of round ``state.t``.

    Args:
      learner: its `act` is called as it stands.
      state: of the learner, with interventions.
      environment: says which tools are there, and how the query is asked.
      stream: the queries.
      query: which of them it is.
      key: of the whole run.
    """
    learner = world.with_interventions(learner, environment, key, labels=stream.labels.shape[1])
    act_key, _ = round_keys(key, state.t)
    here = world.available_at(environment, state.t, state.available)
    vector = world.queries_at(environment, state.t, query, stream.queries[query])
    return learner.act(state._replace(available=here), vector, act_key)


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
    """What comes back for the slate, and what is learnt from it; measured outside of the learner.

    Args:
      learner: its `update` is called as it stands; labels are given to an oracle alone.
      state: as in `show_slate`.
      environment: as in `show_slate`; responds.
      stream: as in `show_slate`.
      query: as in `show_slate`.
      key: as in `show_slate`.
      slate: what was shown.
      position: which of the slate was used; None leaves it to the environment's reranker.
      reward: of a judge, which the labels may contradict; None: the environment's.

    Returns:
      the next state, and the `Trace` of the round.
    """
    if position is not None:
        environment = environment._replace(reranker=lambda key, slate, labels, query: position)
    learner = world.with_interventions(learner, environment, key, labels=stream.labels.shape[1])
    _, respond_key = round_keys(key, state.t)
    available = state.available
    labels = world.labels_at(environment, state.t, query, stream.labels[query])
    choice, feedback, success = world.respond(environment, respond_key, slate, labels, query)
    if reward is not None:
        feedback = feedback._replace(reward=reward)
    before = state._replace(available=world.available_at(environment, state.t, available))
    vector = world.queries_at(environment, state.t, query, stream.queries[query])
    logits = None if learner.logits is None else learner.logits(before, vector)
    seen = feedback._replace(labels=labels) if learner.oracle else feedback
    new = learner.update(before, vector, choice, seen)
    trace = Trace(
        **choice._asdict(),
        reward=world.reported(feedback),
        success=success,
        **measure(logits, labels)._asdict(),
    )
    return new._replace(available=available), trace


def scan_rounds(
    learner: Learner,
    state: State,
    environment: Environment,
    stream: Stream,
    key: PRNGKey,
) -> tuple[State, Trace]:
    """Simulates the stream round by round: the plain scan, for any learner.

    Args:
      learner: its `act` and `update` are called as they stand.
      state: from ``learner.init`` (of the learner `with_interventions`) or an earlier call;
        ``state.t`` is the first round.
      environment: what responds.
      stream: the queries, their labels, and the order of these T rounds. The first -1 in
        ``order`` ends them, so that the chunks of a run can share one shape.
      key: of the whole run; rounds fold in their number.

    Returns:
      the state after the last round, and a `Trace` with fields [T], 0 where there was no round.
    """
    order = stream.order

    def run_round(state, query):
        slate = show_slate(learner, state, environment, stream, query, key)
        return learn(learner, state, environment, stream, query, key, slate)

    def record(i, carry):
        state, trace = carry
        state, line = run_round(state, order[i])
        return state, jax.tree.map(lambda whole, one: whole.at[i].set(one), trace, line)

    line = jax.eval_shape(run_round, state, jax.ShapeDtypeStruct((), order.dtype))[1]
    blank = jax.tree.map(lambda one: jnp.zeros((len(order), *one.shape), one.dtype), line)
    rounds = jnp.argmin(jnp.append(order, -1))  # of real numbers and -1s the first -1
    return lax.fori_loop(0, rounds, record, (state, blank))


def round_keys(key: PRNGKey, t: Int[Array, "*m"]) -> tuple:
    """The keys of `act` and of `respond` in round t (or in many rounds at once)."""
    fold = jax.random.fold_in
    for _ in t.shape:
        fold = jax.vmap(fold, (None, 0))
    return fold(key, 2 * t), fold(key, 2 * t + 1)
