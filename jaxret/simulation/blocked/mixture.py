"""A mixture in a block of rounds: the kernels of its experts, side by side.

Experts share what is asked, shown and answered, and nothing else. So a round mixes their logits
(`jaxret.learners.mixing`), and the bit of what was shown is pending in each of them, as it would be
if it were alone (`jaxret.simulation.blocked.rank_one`, whose functions these are, over experts).
Those of one form go together; those that never move share one product with the documents.

Letters: I items, d width, B rounds a block, b rounds a tile, G experts, g of one form.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret.learners import mixing
from jaxret.learners.learner import Blend, Learner
from jaxret.learners.mixing import Mixed, Rows, expert_state, stays
from jaxret.rules.policies import Policy
from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.simulation.blocked import rank_one
from jaxret.simulation.blocked.rank_one import Rounds, Turn
from jaxret.types import Choice, Feedback, State

Forms = tuple[Any, ...]  # of each form what `block` has of one expert [g, ..]; () of one that stays


class Still(NamedTuple):
    """What stands still for a block."""

    documents: Float[Array, "B I"]  # queries with the documents
    forms: Forms


class Lines(NamedTuple):
    """The same of a tile."""

    documents: Float[Array, "b I"]
    forms: Forms


class Moving(NamedTuple):
    """What changes within a block."""

    mixed: Mixed  # without rows
    forms: Forms


def policy(learner: Learner) -> Policy:
    """Who is shown, of the mixed probabilities."""
    return _blend(learner).policy


def begin(learner: Learner, state: State, rounds: Rounds) -> tuple[Still, Moving]:
    """`rank_one.begin` of every expert."""

    def one(expert, rows, asked):
        return rank_one.begin(expert, expert_state(state, rows), rounds._replace(asked=asked))

    # Asked of each, though all are asked the same: for one product XLA would copy every Theta.
    sizes = [len(form.settings) for form in _blend(learner).forms]
    asked = [jnp.broadcast_to(rounds.asked, (size, *rounds.asked.shape)) for size in sizes]
    still, moving = _of_two(_experts(learner, state.theta.dtype, one, state.extra.rows, asked))
    documents = rounds.asked @ state.theta.T
    return Still(documents, still), Moving(state.extra._replace(rows=()), moving)


def open(
    learner: Learner, still: Still, moving: Moving, first: Int[Array, ""], tile: int
) -> tuple[Lines, Moving]:
    """`rank_one.open` of every expert."""

    def one(expert, still, moving):
        return rank_one.open(expert, still, moving, first, tile)

    lines, fresh = _of_two(_experts(learner, _dtype(moving), one, still.forms, moving.forms))
    documents = lax.dynamic_slice_in_dim(still.documents, first, tile)
    return Lines(documents, lines), moving._replace(forms=fresh)


def logits(
    learner: Learner, moving: Moving, lines: Lines, turn: Turn, axis: Axis
) -> tuple[Float[Array, " I"], Any]:
    """The logarithms of the mixed probabilities.

    Returns:
      logits [I], and what every expert said.
    """

    def one(expert, moving, lines):
        return rank_one.logits(expert, moving, lines, turn, axis)

    told, said = _of_two(_experts(learner, _dtype(moving), one, moving.forms, lines.forms))
    plain = lines.documents[turn.place]

    def at_the_documents(form):
        taus = [rank_one.parts(form.learner(g))[0].tau for g in range(len(form.settings))]
        return jnp.stack([over_items.masked(plain / tau, turn.here) for tau in taus])

    forms = _blend(learner).forms
    z = [at_the_documents(form) if stays(form) else z for form, z in zip(forms, told, strict=True)]
    words = mixing.words(jnp.concatenate(z), axis)
    return mixing.mixed(moving.mixed, words, turn.here), (words, said)


def learn(
    learner: Learner,
    moving: Moving,
    lines: Lines,
    turn: Turn,
    said: Any,
    choice: Choice,
    feedback: Feedback,
    axis: Axis,
) -> Moving:
    """Weights and calibration move; every expert learns from the bit of what was shown."""
    words, said = said

    def one(expert, moving, lines, said):
        return rank_one.learn(expert, moving, lines, turn, said, choice, feedback, axis)

    forms = _experts(learner, _dtype(moving), one, moving.forms, lines.forms, said)
    of_shown = jax.vmap(lambda word: over_items.take(word, choice.item, axis))(words)
    new = mixing.weighed(_blend(learner), moving.mixed, of_shown, feedback.reward)
    moves = turn.real & feedback.observed
    mixed = jax.tree.map(lambda new, old: jnp.where(moves, new, old), new, moving.mixed)
    return Moving(mixed, forms)


def close(learner: Learner, moving: Moving, fresh: Moving, first: Int[Array, ""]) -> Moving:
    """`rank_one.close` of every expert."""

    def one(expert, moving, fresh):
        return rank_one.close(expert, moving, fresh, first)

    forms = _experts(learner, _dtype(moving), one, moving.forms, fresh.forms)
    return fresh._replace(forms=forms)


def end(
    learner: Learner, state: State, still: Still, moving: Moving, rounds: Rounds, axis: Axis
) -> State:
    """The state after a block; the documents, in ``theta``, are what they were."""

    def one(expert, rows, still, moving):
        new = rank_one.end(expert, expert_state(state, rows), still, moving, rounds, axis)
        return Rows(theta=new.theta, extra=new.extra)

    old = state.extra.rows
    new = _experts(learner, state.theta.dtype, one, old, still.forms, moving.forms)
    rows = tuple(after or before for after, before in zip(new, old, strict=True))
    t = state.t + rounds.real.sum(dtype=state.t.dtype)
    return state._replace(t=t, extra=moving.mixed._replace(rows=rows))


def _experts(learner: Learner, dtype: Any, function: Callable, *of_forms: Sequence[Any]) -> Forms:
    """A function of every expert that moves, and of what is its own of each form's."""

    def of_form(form, *own):
        def one(numbers, own):
            return function(form.make(*numbers), *own)

        return () if stays(form) else jax.vmap(one)(jnp.asarray(form.settings, dtype), own)

    return tuple(of_form(*one) for one in zip(_blend(learner).forms, *of_forms, strict=True))


def _of_two(pairs: Forms) -> tuple[Forms, Forms]:
    """Pairs of forms, as two."""
    firsts, seconds = zip(*(pair or ((), ()) for pair in pairs), strict=True)
    return firsts, seconds


def _dtype(moving: Moving) -> Any:
    return moving.mixed.log_weights.dtype


def _blend(learner: Learner) -> Blend:
    assert learner.blend is not None
    return learner.blend
