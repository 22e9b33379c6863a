"""What asks, and what answers a slate: labels, noisy labels, a judge, rerankers, and all of life.

    success = 'the chosen item is one of the labels'
    noise_rate rho: the learner sees the bit the wrong way round with probability rho   B.4
    verdicts: a judge rewards item i for query n with verdicts[n, i], whatever the labels say
    reranker: of the k items shown, which one is used: simulated, or a judge's  Algorithm 2
    arrives, leaves: item i is there in the rounds arrives_i <= t < leaves_i     Algorithm 3
                     and where leaves_i < arrives_i it is away in between, and returns
    rotation, drift: queries turn, other tools become right             `jaxret.environments`
    poison, censoring: bits that are an attacker's, or do not come
    delay, rewriting, restart: what happens to the learner itself
    `jaxret.environments.deployment`

They go together as they like. A plain environment is ``Environment()``.

Letters: N queries, I items, d width, k items shown, L labels.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from jaxret.environments import availability, censoring, drift, poison
from jaxret.environments.censoring import Censoring
from jaxret.environments.delay import Delay
from jaxret.environments.drift import Drift, Rotation
from jaxret.environments.poison import Poison
from jaxret.environments.restart import Restart
from jaxret.environments.rewriting import Rewriting
from jaxret.runtime.validate import from_registry, require
from jaxret.types import Choice, Feedback, PRNGKey, Slate


class Reranker(Protocol):
    """Picks one of the items shown.

    Args:
      key: consumed.
      slate: the k items.
      labels: [L], -1 pads; a simulated reranker looks at them, a real one at ``query``.
      query: the position of the query in the stream's queries.

    Returns:
      the position in the slate, in 0 .. k - 1.
    """

    def __call__(
        self, key: PRNGKey, slate: Slate, labels: Int[Array, " L"], query: Int[Array, ""]
    ) -> Int[Array, ""]: ...


class Environment(NamedTuple):
    """Everything outside the learner; what is None does not occur."""

    noise_rate: float | Float[Array, ""] | Float[Array, " I"] | None = None  # of all, or by tool
    verdicts: Float[Array, "N I"] | None = None  # in [0, 1], of the stream's queries
    reranker: Reranker | None = None
    arrives: Int[Array, " I"] | None = None  # first round of each item
    leaves: Int[Array, " I"] | None = None  # first round without it
    rotation: Rotation | None = None
    drift: Drift | None = None
    poison: Poison | None = None
    censoring: Censoring | None = None
    delay: Delay | None = None
    rewriting: Rewriting | None = None
    restart: Restart | None = None


def label_noise(noise_rate: float | Float[ArrayLike, " I"]) -> Environment:
    """Rewards that are turned round with probability ``noise_rate``, in [0, 0.5].

    Args:
      noise_rate: of every tool; or of each, [I].
    """
    rates = np.asarray(noise_rate)
    require("noise_rate", noise_rate, "in [0, 0.5]", lambda _: is_noise(rates))
    return Environment(noise_rate=jnp.asarray(rates, jnp.float32) if rates.ndim else float(rates))


def is_noise(rates: float | Float[ArrayLike, "*n"]) -> bool:
    """Whether all rates of noise are in [0, 0.5]."""
    values = np.asarray(rates)
    return bool(((values >= 0) & (values <= 0.5)).all())


def judged(verdicts: Float[ArrayLike, "N I"]) -> Environment:
    """Rewards that a judge gives, bits or probabilities: of item i for query n, ``verdicts[n, i]``.

    The same question has the same answer: a query that comes back meets the same mistakes.
    """
    table = np.asarray(verdicts, np.float32)
    if table.ndim != 2:
        raise ValueError(f"verdicts must be a table [N, I], got shape {table.shape}")
    wrong = np.argwhere(~((table >= 0) & (table <= 1)))  # NaN too
    if len(wrong):
        n, i = wrong[0]
        raise ValueError(
            f"verdicts must be in [0, 1], got {table[n, i]} for query {n} and item {i} "
            f"({len(wrong)} such)"
        )
    return Environment(verdicts=jnp.asarray(table))


def simulated_reranker(*, accuracy: float) -> Reranker:
    """Recognises a right item on the slate with probability ``accuracy``, else picks any.

    'Any' is even over the slate, so it may still be right.
    """
    require("accuracy", accuracy, "in [0, 1]", lambda x: 0 <= x <= 1)

    def rerank(key, slate, labels, query):
        del query
        coin, lot = jax.random.split(key)
        right = (slate.items[:, None] == labels[None, :]).any(axis=1)
        sees = (jax.random.uniform(coin) < accuracy) & right.any()
        return jnp.where(sees, jnp.argmax(right), jax.random.randint(lot, (), 0, right.shape[0]))

    return rerank


class JudgingReranker(NamedTuple):
    """See `judging_reranker`."""

    verdicts: Float[Array, "N I"]

    def __call__(
        self, key: PRNGKey, slate: Slate, labels: Int[Array, " L"], query: Int[Array, ""]
    ) -> Int[Array, ""]:
        del key, labels
        return jnp.argmax(self.verdicts[query, slate.items])


def judging_reranker(verdicts: Float[ArrayLike, "N I"]) -> JudgingReranker:
    """Picks what a judge believes in most: of the slate, the item with the largest ``verdicts``.

    It always decides the same, but nobody knows the probability with which it uses an item that is
    shown: a propensity says how items came onto the slate, and no more (Algorithm 2, line 8).

    Raises:
      ValueError: see `judged`.
    """
    return JudgingReranker(jnp.asarray(judged(verdicts).verdicts))


def available_at(
    environment: Environment, t: Int[Array, ""], available: Bool[Array, " I"]
) -> Bool[Array, " I"]:
    """The items that are there in round t, among those the catalogue holds at all.

    Returns:
      [I].
    """
    arrives, leaves = environment.arrives, environment.leaves
    come = True if arrives is None else arrives <= t
    stays = True if leaves is None else t < leaves
    if arrives is None or leaves is None:
        return available & come & stays
    return available & jnp.where(leaves < arrives, come | stays, come & stays)


def always_available(
    environment: Environment, rounds: int, available: Bool[Array, " I"]
) -> Bool[Array, " I"]:
    """The items that are there in every round from 0 to ``rounds - 1``.

    Returns:
      [I].
    """
    arrives, leaves = environment.arrives, environment.leaves
    comes = True if arrives is None else arrives <= 0
    stays = True if leaves is None else rounds <= leaves
    if arrives is None or leaves is None:
        return available & comes & stays
    return available & jnp.where(leaves < arrives, comes | stays, comes & stays)


def asked(
    environment: Environment, t: Int[Array, ""], query: Int[Array, ""], vector: Float[Array, " d"]
) -> Float[Array, " d"]:
    """A query as it is asked in round t; ``vector`` as the stream has it.

    Returns:
      [d].
    """
    if environment.rotation is None:
        return vector
    return drift.turned_at(environment.rotation, t, query, vector)


def right_tools(
    environment: Environment, t: Int[Array, ""], query: Int[Array, ""], labels: Int[Array, " L"]
) -> Int[Array, " L"]:
    """The tools that are right for a query in round t; ``labels`` as the stream has them.

    Returns:
      [L], -1 pads.
    """
    if environment.drift is None:
        return labels
    return drift.right_at(environment.drift, t, query, labels)


def respond(
    environment: Environment,
    key: PRNGKey,
    slate: Slate,
    labels: Int[Array, " L"],
    query: Int[Array, ""],
) -> tuple[Choice, Feedback, Float[Array, ""]]:
    """Uses one item of the slate and says whether it worked. ``key`` is consumed.

    Args:
      environment: what responds.
      key: of the round.
      slate: what was shown.
      labels: the right tools of this round.
      query: the position of the query in the stream's queries.

    Returns:
      the choice, the feedback (without labels; 0 where no answer comes), and the success [], which
      a noisy reward contradicts.
    """
    coin, lot = jax.random.split(key)
    if environment.reranker is None:
        position = jnp.zeros((), jnp.int32)
    else:
        position = environment.reranker(lot, slate, labels, query)
    choice = Choice(item=slate.items[position], propensity=slate.propensity[position])
    success = (choice.item == labels).any()
    dtype = slate.propensity.dtype
    reward = success.astype(dtype)
    if environment.verdicts is not None:
        reward = environment.verdicts[query, choice.item].astype(dtype)
    if environment.noise_rate is not None:
        rates = jnp.asarray(environment.noise_rate)
        turned = jax.random.uniform(coin) < (rates[choice.item] if rates.ndim else rates)
        reward = jnp.where(turned, 1 - reward, reward)
    if environment.poison is not None:
        reward = poison.poisoned(environment.poison, choice.item, query, reward)
    feedback = Feedback(reward=reward)
    if environment.censoring is not None:
        silence = jax.random.fold_in(key, _SILENCE)
        observed = censoring.answered(environment.censoring, silence, success)
        feedback = Feedback(reward=jnp.where(observed, reward, 0), observed=observed)
    return choice, feedback, success.astype(dtype)


def reported(feedback: Feedback) -> Float[Array, ""]:
    """The reward for a `Trace`: NaN where no answer came.

    Returns:
      [].
    """
    if feedback.observed is True:
        return feedback.reward
    return jnp.where(feedback.observed, feedback.reward, jnp.nan)


def environment_from(spec: Mapping[str, Any], *, items: int, rounds: int, seed: int) -> Environment:
    """Reads the settings of an environment.

    Args:
      spec: ``noise_rate``; ``reranker`` and ``availability``, each None, a name, or a mapping of
        ``name`` and settings, whose times are shares of the stream in [0, 1].
      items: I, of the catalogue.
      rounds: T, of the stream.
      seed: draws the tools that come and go.

    Raises:
      ValueError: for anything that is unknown or out of range.
    """
    if unknown := sorted(set(spec) - set(_SETTINGS)):
        raise ValueError(f"environment: unknown {unknown}; known: {', '.join(_SETTINGS)}")
    settings = _SETTINGS | dict(spec)
    environment = label_noise(settings["noise_rate"]) if settings["noise_rate"] else Environment()
    if settings["reranker"] is not None:
        reranker = from_registry("environment", "reranker", RERANKERS, settings["reranker"])
        environment = environment._replace(reranker=reranker)
    if (given := settings["availability"]) is not None:
        given = dict(given) if isinstance(given, Mapping) else {"name": given}
        times = {key: value for key, value in given.items() if key in _TIMES}
        if wrong := {key: value for key, value in times.items() if not 0 <= value <= 1}:
            raise ValueError(f"environment: times are shares of the stream in [0, 1], got {wrong}")
        given |= {key: round(share * rounds) for key, share in times.items()}
        given |= {"items": items, "seed": seed}
        found = from_registry("environment", "availability", availability.REGISTRY, given)
        environment = environment._replace(**found._asdict())
    return environment


RERANKERS = {"simulated": simulated_reranker}
_SETTINGS: dict[str, Any] = {"noise_rate": 0.0, "reranker": None, "availability": None}
_SILENCE = 2  # what follows from a round's second key: 0 and 1 are its halves
_TIMES = ("at", "first", "last", "leaves", "back")
