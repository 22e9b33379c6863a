"""Interventions on the learner: delayed feedback, rewritten documents, a restart from a snapshot.

    geometric_delay(mean=50)                 feedback arrives some rounds later, out of order
    rewritten_documents(before, after, at=900, how="carry")
    restart_from_snapshot(saved=800, at=1000)

These effects change the learner's state or the time of its updates. `intervened` wraps a learner so
that each update includes them; only the plain scan can run it.

There are then two counts of rounds. The environment's round counts queries; it determines random
draws, available tools and the time of an effect. The learner's own ``t`` counts the feedback that
it received, as in a live index; its step sizes and replay samples depend on that count. The memory
of an intervention (feedback in transit, a snapshot) is stored with the learner's state, and
`learner_state` removes it.

Letters: I items, d width, L labels, C the longest delay + 1 (slots of the ring buffer).
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from jaxret.learners.learner import Learner, change_rows, query_for, without_past
from jaxret.learners.wrappers import wrap
from jaxret.runtime import over_items
from jaxret.runtime.validate import matrix_of, require
from jaxret.types import Choice, Feedback, PRNGKey, State

How: TypeAlias = Literal["keep", "reset", "carry"]


class Answer(NamedTuple):
    """The feedback of one round, with its query and choice."""

    query: Any  # in the form that the learner reads
    choice: Choice
    reward: Float[Array, ""]
    observed: Bool[Array, ""] | None = None  # None: always observed
    labels: Int[Array, " L"] | None = None  # the right items, only for oracles


#: Updates a learner's state by one answer.
Learn: TypeAlias = Callable[[State, Answer], State]


class Pending(NamedTuple):
    """A ring buffer of answers in transit; the leaves of ``answers`` have a leading axis C."""

    due: Int[Array, " C"]  # round in which the answer arrives, -1 for an empty slot
    answers: Answer


class Delay(NamedTuple):
    """An effect that delays answers by some rounds.

    The answer of round t waits in slot ``t mod C`` of a ring buffer, which is empty again before
    round ``t + C``. Answers due in the same round update the learner one by one, oldest first.
    """

    probabilities: Float[Array, " C"]  # probabilities of a delay of 0, 1, .., C - 1 rounds; sum 1

    def memory(self, learner: Learner, state: State, answer: Answer) -> Pending:
        """Make an empty ring.

        Args:
          learner: unused.
          state: unused.
          answer: an example, for the shapes.
        """
        del learner, state
        slots = len(self.probabilities)
        blank = jax.tree.map(lambda x: jnp.zeros((slots, *x.shape), x.dtype), answer)
        return Pending(due=jnp.full(slots, -1, jnp.int32), answers=blank)

    def deliver(
        self,
        memory: Pending,
        t: Int[Array, ""],
        key: PRNGKey,
        state: State,
        answer: Answer,
        learn: Learn,
    ) -> tuple[State, Pending]:
        """Send the answer of round t, and learn from all answers that are due.

        Args:
          memory: answers in transit.
          t: number of the round, counted in queries.
          key: consumed.
          state: state of the learner.
          answer: answer of round t.
          learn: updates a state by one answer.

        Returns:
          The learner's new state, and the answers still in transit.
        """
        slots = len(memory.due)
        rounds = over_items.draw(self.probabilities, jax.random.uniform(key), None)
        slot = t % slots
        answers = jax.tree.map(lambda ring, x: ring.at[slot].set(x), memory.answers, answer)
        due = memory.due.at[slot].set(t + rounds)
        age = (t - jnp.arange(slots, dtype=jnp.int32)) % slots  # 0 for the slot of round t

        def any_due(carry):
            return (carry[1] == t).any()

        def learn_oldest(carry):
            state, due = carry
            oldest = jnp.argmax(jnp.where(due == t, age, -1))
            one = jax.tree.map(lambda ring: ring[oldest], answers)
            return learn(state, one), due.at[oldest].set(-1)

        state, due = lax.while_loop(any_due, learn_oldest, (state, due))
        return state, Pending(due=due, answers=answers)


class Restart(NamedTuple):
    """An effect that resets the learner to an earlier state.

    Answers in transit are not lost: they reach the learner after the reset. A snapshot taken before
    documents were rewritten has the rows of the old documents.
    """

    saved: int | Int[Array, ""]  # the round before which the state is saved
    at: int | Int[Array, ""]  # the round before which the state is restored

    def memory(self, learner: Learner, state: State, answer: Answer) -> State:
        """Take the snapshot of round 0.

        Args:
          learner: unused.
          state: state of the learner, as it starts.
          answer: unused.
        """
        del learner, answer
        return state

    def change(
        self, memory: State, t: Int[Array, ""], learner: Learner, state: State
    ) -> tuple[State, State]:
        """Take or restore a snapshot, if it is due in round t.

        Args:
          memory: the snapshot.
          t: number of the round that is about to begin.
          learner: unused.
          state: state of the learner.

        Returns:
          The learner's state, and the snapshot.
        """
        del learner
        state, memory = _once(t == self.saved, lambda now, _: (now, now), state, memory)
        return _once(t == self.at, lambda _, saved: (saved, saved), state, memory)


class Rewriting(NamedTuple):
    """An effect that rewrites documents before one round.

    ``how`` determines the new row of a tool whose row theta was learnt from the old document:

        keep      theta
        reset     the new document
        carry     the new document plus the learnt change: after + (theta - before)

    ``how`` applies to all rows of the tool (`jaxret.learners.learner.change_rows`); reset also
    erases its usage and its remembered rounds (`jaxret.learners.learner.without_past`). Rows of
    unchanged documents do not change. A live index does the same tool by tool
    (`jaxret.serving.catalogue`).
    """

    before: Float[Array, "I d"]
    after: Float[Array, "I d"]
    at: Int[Array, ""]  # the round before which the documents change
    how: How

    def change(
        self, memory: tuple, t: Int[Array, ""], learner: Learner, state: State
    ) -> tuple[State, tuple]:
        """Change the rows to the new documents, if this is due in round t.

        Args:
          memory: unused.
          t: number of the round that is about to begin.
          learner: learner whose projection is applied to the new rows.
          state: state of the learner.

        Returns:
          The learner's state, and the memory.
        """
        (state,) = _once(t == self.at, lambda state: (self._moved(learner, state),), state)
        return state, memory

    def _moved(self, learner: Learner, state: State) -> State:
        if self.how == "keep":
            return state
        dtype = state.theta.dtype

        def projected(rows):
            return learner.init(rows.astype(dtype), state.available).theta

        before, after = projected(self.before), projected(self.after)
        rewritten = (self.before != self.after).any(axis=1)[:, None]

        def move(theta):
            moved = after if self.how == "reset" else projected(after + theta - before)
            return jnp.where(rewritten, moved, theta)

        new = change_rows(learner, state, move)
        if self.how == "carry":
            return new
        return without_past(new, rewritten[:, 0])


def geometric_delay(*, mean: float, longest: int | None = None) -> Delay:
    """Delay answers by a truncated geometric distribution.

    Args:
      mean: mean delay in rounds before truncation, >= 0.
      longest: longest delay in rounds, >= 0; None: ten times the mean.

    Raises:
      ValueError: if a number is negative.
    """
    require("mean", mean, ">= 0", lambda x: x >= 0)
    require("longest", longest, "None or >= 0", lambda n: n is None or n >= 0)
    rounds = np.arange((round(10 * mean) if longest is None else longest) + 1)
    weights = (mean / (1 + mean)) ** rounds
    return Delay(jnp.asarray(weights / weights.sum(), jnp.float32))


def restart_from_snapshot(*, saved: int, at: int) -> Restart:
    """Reset the learner to an earlier state, which undoes the updates in between.

    Args:
      saved: round before which the state is saved, >= 0.
      at: round before which the state is restored, > ``saved``.

    Raises:
      ValueError: if a round is out of range.
    """
    require("saved", saved, ">= 0", lambda t: t >= 0)
    require("at", at, f"> saved={saved}", lambda t: t > saved)
    return Restart(saved, at)


def rewritten_documents(
    before: Float[ArrayLike, "I d"], after: Float[ArrayLike, "I d"], *, at: int, how: How = "carry"
) -> Rewriting:
    """Rewrite the documents of tools while the learner serves.

    Args:
      before: embeddings of the task's documents [I, d].
      after: embeddings of the new documents [I, d].
      at: round before which the documents change, >= 1.
      how: ``keep``, ``reset`` or ``carry`` the learnt change of a row (`Rewriting`).

    Raises:
      ValueError: if the shapes differ, ``at`` is below 1, or ``how`` is unknown.
    """
    old, new = matrix_of("before", before), matrix_of("after", after)
    require("the shape of after", new.shape, f"{old.shape}, that of before", old.shape.__eq__)
    require("at", at, ">= 1", lambda t: t >= 1)
    require("how", how, "keep, reset or carry", lambda x: x in ("keep", "reset", "carry"))
    return Rewriting(jnp.asarray(old), jnp.asarray(new), jnp.asarray(at, jnp.int32), how)


class Intervened(NamedTuple):
    """`State.extra` of a learner under interventions, whose ``State.t`` counts queries."""

    extra: Any  # `State.extra` of the learner without interventions
    t: Int[Array, ""]  # `State.t` of the learner without interventions: answers received
    memories: tuple[Any, ...]  # one per intervention, () without memory


def intervened(
    learner: Learner,
    interventions: Sequence[tuple[int, Any]],
    key: PRNGKey,
    *,
    labels: int,
    always_observed: bool,
    tools_change: bool,
) -> Learner:
    """Wrap a learner so that each of its updates includes the interventions.

    Args:
      learner: any learner.
      interventions: pairs of the number that keys an effect's draws, and the effect; answers are
        delivered first, then each effect changes the learner, in this order.
      key: random key of the whole run.
      labels: L, the length of the labels that an oracle is given.
      always_observed: whether feedback is observed in every round.
      tools_change: whether the available tools change; answers about absent tools are dropped.

    Raises:
      ValueError: if several effects deliver answers, or a state lacks the interventions' memory.
    """
    carriers = [
        position for position, (_, one) in enumerate(interventions) if hasattr(one, "deliver")
    ]
    changes = [
        position for position, (_, one) in enumerate(interventions) if hasattr(one, "change")
    ]
    if len(carriers) > 1:
        kinds = ", ".join(type(interventions[position][1]).__name__ for position in carriers)
        raise ValueError(f"only one effect can deliver the answers of an environment, got {kinds}")

    def init(theta, available=None):
        own = learner.init(theta, available)
        number = jnp.zeros((), theta.dtype)
        answer = Answer(
            query=query_for(learner, theta[0]),
            choice=Choice(item=jnp.zeros((), jnp.int32), propensity=number),
            reward=number,
            observed=None if always_observed else jnp.asarray(False),
            labels=jnp.zeros(labels, jnp.int32) if learner.facts.oracle else None,
        )
        memories = tuple(
            one.memory(learner, own, answer) if hasattr(one, "memory") else ()
            for _, one in interventions
        )
        return _around(own, own.available, own.t, memories)

    def learn(state, answer):
        observed = True if answer.observed is None else answer.observed
        if tools_change:
            observed = observed & state.available[answer.choice.item]
        feedback = Feedback(answer.reward, observed, answer.labels)
        return learner.update(state, answer.query, answer.choice, feedback)

    def update(state, query, choice, feedback):
        if not isinstance(state.extra, Intervened):
            raise ValueError(
                f"this state of {learner.name!r} lacks what interventions remember: start from the "
                "init of `jaxret.environments.environment.with_interventions`"
            )
        own, t, memories = learner_state(state), state.t, list(state.extra.memories)
        observed = None if always_observed else jnp.asarray(feedback.observed)
        answer = Answer(query, choice, feedback.reward, observed, feedback.labels)
        for position in carriers:
            number, one = interventions[position]
            draw = jax.random.fold_in(jax.random.fold_in(key, 2 * t + 1), number)
            own, memories[position] = one.deliver(memories[position], t, draw, own, answer, learn)
        if not carriers:
            own = learn(own, answer)
        for position in changes:
            one = interventions[position][1]
            own, memories[position] = one.change(memories[position], t + 1, learner, own)
        return _around(own, state.available, t + 1, tuple(memories))

    return wrap(learner, learner.name, unwrap=learner_state, init=init, update=update)


def learner_state(state: State) -> State:
    """Return the state of the learner, without the memory of interventions."""
    if not isinstance(state.extra, Intervened):
        return state
    return state._replace(t=state.extra.t, extra=state.extra.extra)


def _around(own: State, available, t, memories: tuple) -> State:
    carried = Intervened(extra=own.extra, t=own.t, memories=memories)
    return State(theta=own.theta, available=available, t=t, extra=carried)


def _once(when: Bool[Array, ""], change: Callable[..., tuple], *states: Any) -> tuple:
    """Change the states if ``when`` holds; `lax.cond` would copy them if it does not."""

    def run(carry):
        return change(*carry[0]), jnp.asarray(False)

    return lax.while_loop(lambda carry: carry[1], run, (states, when))[0]
