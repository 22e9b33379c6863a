"""One round in two halves: what is shown, and what is learnt from the answer.

    slate        <- show(learner, state, ...)
    state, trace <- settle(learner, state, ..., slate)

`jaxret.online.replay` plays both inside a compiled program. Where something outside of it chooses
from the slate (a language model, a judge, a person), the halves are compiled apart, and the choice
comes in as ``position``:

    slate = jit(show)(...);  position = ask(slate.items);  state, trace = jit(settle)(..., position)

Round t uses ``fold_in(key, t)`` either way, so both give the same run for the same choices.
"""

import jax
from jaxtyping import Array, Float, Int

from jaxret.online import environment as world
from jaxret.online.environment import Environment
from jaxret.online.learner import Learner
from jaxret.types import PRNGKey, Slate, Stream, Trace


def show(
    learner: Learner,
    state,
    environment: Environment,
    stream: Stream,
    query: Int[Array, ""],
    key: PRNGKey,
) -> Slate:
    """The slate of round ``state.t``.

    Args:
      learner: its `act` is called as it stands.
      state: of the learner.
      environment: says which tools are there.
      stream: the queries.
      query: which of them it is.
      key: of the whole run.
    """
    act_key, _ = round_keys(key, state.t)
    here = world.present(environment, state.t, state.available)
    return learner.act(state._replace(available=here), stream.queries[query], act_key)


def settle(
    learner: Learner,
    state,
    environment: Environment,
    stream: Stream,
    query: Int[Array, ""],
    key: PRNGKey,
    slate: Slate,
    position: Int[Array, ""] | None = None,
    reward: Float[Array, ""] | None = None,
) -> tuple:
    """What comes back for the slate, and what is learnt from it.

    Args:
      learner: its `update` is called as it stands.
      state: as in `show`.
      environment: as in `show`; answers.
      stream: as in `show`.
      query: as in `show`.
      key: as in `show`.
      slate: what was shown.
      position: which of the slate was used; None leaves it to the environment's reranker.
      reward: the bit of a judge, which the labels may contradict; None: the environment's.

    Returns:
      the next state, and the `Trace` of the round.
    """
    if position is not None:
        environment = environment._replace(reranker=lambda key, slate, labels, query: position)
    _, answer_key = round_keys(key, state.t)
    available, labels = state.available, stream.labels[query]
    choice, feedback = world.answer(environment, answer_key, slate, labels, query)
    if reward is not None:
        feedback = feedback._replace(reward=reward)
    seen = state._replace(available=world.present(environment, state.t, available))
    new, info = learner.update(seen, stream.queries[query], choice, feedback.reward, labels)
    trace = Trace(**choice._asdict(), **feedback._asdict(), **info._asdict())
    return new._replace(available=available), trace


def round_keys(key: PRNGKey, t: Int[Array, "*m"]) -> tuple:
    """The keys of `act` and of `answer` in round t (or in many rounds at once)."""
    fold = jax.random.fold_in
    for _ in t.shape:
        fold = jax.vmap(fold, (None, 0))
    return fold(key, 2 * t), fold(key, 2 * t + 1)
