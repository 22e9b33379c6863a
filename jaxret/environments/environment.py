"""The environment: everything outside the learner (queries, feedback, availability, interventions).

    success: the item that is used is one of the labels; if no tool is right, the empty answer
    noise_rate rho: the reward is inverted with probability rho                          B.4
    verdicts: a judge rewards item i for query n with verdicts[n, i], regardless of the labels
    reranker: chooses which of the k items shown is used                         Algorithm 2
    arrives, leaves: item i is available in the rounds arrives_i <= t < leaves_i Algorithm 3
                     and absent in between if leaves_i < arrives_i
    rotation, drift: queries rotate, other tools become right    `jaxret.environments.drift`
    poison, censoring: false rewards, missing feedback        `jaxret.environments.feedback`
    delay, restart, rewriting: interventions on the learner
                                                         `jaxret.environments.interventions`

All can be combined; ``Environment()`` has none of them.

**A new effect** is a NamedTuple in one file, given as ``Environment(effects=(effect,))``. It has
one or more of these methods, which all forms of the simulation call (scan, blocks, mesh):

    available_at(t, available [I]) -> [I]            removes items in round t
    queries_at(t, query, vector [d]) -> [d]          changes the vector of a query in round t
    labels_at(t, query, labels [L]) -> [L]           changes the right labels in round t
    reward_of(key, item, query, reward) -> []        changes the reward that the learner sees
    is_observed(key, success) -> []                  decides whether feedback arrives
    deliver(memory, t, key, state, answer, learn) -> (state, memory)    decides when it arrives
    change(memory, t, learner, state) -> (state, memory)    changes the learner before round t
    memory(learner, state, answer) -> memory         initial memory of these two; default ()

Three declarations are part of the type itself, and no other file needs to know the effect:

- Shapes: the annotations of its fields, ``Float[Array, "N d"]``. The letters N queries, I items,
  d width and L labels are checked against the task; any other letter stands for any size.
- Interventions: an effect with ``deliver`` or ``change`` intervenes on the learner. Only the plain
  scan can run it.
- Devices: ``SHARDED = ("field", ..)`` names the arrays that are split over the mesh axis of the
  items, along their axis I, and padded with zeros like the catalogue (padding items are never
  available). On a device they hold the entries of the local items, like ``available`` in
  ``available_at``. All other arrays are replicated, and indexed by catalogue positions.

The fields must be arrays and numbers, except those of an intervention.

Letters: N queries, I items, d width, k items shown, L labels, t a round.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol, get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from jaxret.environments import interventions
from jaxret.environments.drift import Drift, Rotation
from jaxret.environments.feedback import Censoring, Poison
from jaxret.environments.interventions import Delay, Restart, Rewriting
from jaxret.learners.learner import Learner
from jaxret.runtime.validate import require
from jaxret.types import EMPTY, Choice, Feedback, PRNGKey, Slate


class SlateReranker(Protocol):
    """Pick one of the items shown.

    Args:
      key: consumed.
      slate: the k items.
      labels: [L], -1 pads; a simulated reranker reads them, a real one reads ``query``.
      query: the position of the query among the N queries.

    Returns:
      the position in the slate, in 0 .. k - 1.
    """

    def __call__(
        self, key: PRNGKey, slate: Slate, labels: Int[Array, " L"], query: Int[Array, ""]
    ) -> Int[Array, ""]: ...


class Environment(NamedTuple):
    """The effects of an environment on queries, items and feedback; None is an absent effect.

    Effects are applied method by method: available items, queries, labels, reward, observation,
    delivery, change; effects with the same method apply in the order of the fields. Effect n,
    counted from ``rotation``, draws with ``fold_in(respond key of the round, n)``. The numbers
    0 and 1 would collide with the two halves of that key, which noise and reranker use; they belong
    to rotation and drift, which do not draw.

    Attributes:
      noise_rate: probability with which a reward is inverted, in [0, 0.5], of all items or of each
        item [I].
      verdicts: a judge's rewards in [0, 1] of the stream's queries [N, I].
      reranker: chooses the used item of each slate; None: the first item is used.
      empty_reward: reward in [0, 1] of an empty answer (`jaxret.learners.confidence.abstaining`) to
        a query without a right tool; None: 0. Where a tool is right an empty answer earns 0.
      arrives: first round of each item [I].
      leaves: first round without each item [I].
      rotation: rotation of the queries.
      drift: replacement of the right labels from one round on.
      censoring: withholds the feedback of some rounds.
      delay: delays feedback by some rounds.
      poison: false rewards of an attacker.
      restart: resets the learner to an earlier state.
      rewriting: rewrites documents before one round.
      effects: further effects, applied after those above.
    """

    SHARDED = ("arrives", "leaves")

    noise_rate: float | Float[Array, ""] | Float[Array, " I"] | None = None
    verdicts: Float[Array, "N I"] | None = None
    reranker: SlateReranker | None = None
    empty_reward: float | Float[Array, ""] | None = None
    arrives: Int[Array, " I"] | None = None
    leaves: Int[Array, " I"] | None = None
    rotation: Rotation | None = None
    drift: Drift | None = None
    censoring: Censoring | None = None
    delay: Delay | None = None
    poison: Poison | None = None
    restart: Restart | None = None
    rewriting: Rewriting | None = None
    effects: tuple[Any, ...] = ()


class Effect(NamedTuple):
    """An effect that is present in an environment."""

    name: str  # name of the field, or ``effects[i]``
    number: int  # number that is folded into the keys of the effect's draws
    effect: Any  # the effect


_BUILT_IN = Environment._fields[Environment._fields.index("rotation") : -1]
_METHODS = (
    *("available_at", "queries_at", "labels_at", "reward_of", "is_observed"),
    *("deliver", "change"),
)


def label_noise(noise_rate: float | Float[ArrayLike, " I"]) -> Environment:
    """Make an environment that inverts rewards at random.

    Args:
      noise_rate: the probability with which a reward is inverted, in [0, 0.5]: one number, or one
        for each item, [I].

    Raises:
      ValueError: for a rate out of range.
    """
    rates = np.asarray(noise_rate)
    require("noise_rate", noise_rate, "in [0, 0.5]", lambda _: _are_noise_rates(rates))
    return Environment(noise_rate=jnp.asarray(rates, jnp.float32) if rates.ndim else float(rates))


def _are_noise_rates(rates: float | Float[ArrayLike, "*n"]) -> bool:
    values = np.asarray(rates)
    return bool(((values >= 0) & (values <= 0.5)).all())


def judged(verdicts: Float[ArrayLike, "N I"]) -> Environment:
    """Make an environment in which a judge gives the rewards.

    A judge is consistent: a repeated query gets the same verdicts, mistakes included.

    Args:
      verdicts: [N, I], the reward of item i for query n, a bit or a probability in [0, 1].

    Raises:
      ValueError: for another shape, or verdicts out of range.
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


def simulated_reranker(*, accuracy: float) -> SlateReranker:
    """Make a reranker that picks a right item of the slate with a given probability.

    Otherwise, and if no item of the slate is right, it picks uniformly from the whole slate, which
    may still give a right item.

    Args:
      accuracy: probability of recognising a right item, in [0, 1].

    Raises:
      ValueError: if the accuracy is out of range.
    """
    require("accuracy", accuracy, "in [0, 1]", lambda x: 0 <= x <= 1)

    def rerank(key, slate, labels, query):
        del query
        coin, lot = jax.random.split(key)
        right = (slate.items[:, None] == labels[None, :]).any(axis=1)
        recognised = (jax.random.uniform(coin) < accuracy) & right.any()
        any_position = jax.random.randint(lot, (), 0, right.shape[0])
        return jnp.where(recognised, jnp.argmax(right), any_position)

    return rerank


class JudgingReranker(NamedTuple):
    """A reranker that picks the item with the largest verdict, from `judging_reranker`."""

    verdicts: Float[Array, "N I"]

    def __call__(
        self, key: PRNGKey, slate: Slate, labels: Int[Array, " L"], query: Int[Array, ""]
    ) -> Int[Array, ""]:
        del key, labels
        return jnp.argmax(self.verdicts[query, slate.items])


def judging_reranker(verdicts: Float[ArrayLike, "N I"]) -> JudgingReranker:
    """Make a reranker that picks the item of the slate with the largest verdict of a judge.

    The propensity of a choice remains the probability that the item is on the slate (Algorithm 2,
    line 8); the probability that the judge picks it is unknown.

    Args:
      verdicts: [N, I], the value of item i for query n, in [0, 1].

    Raises:
      ValueError: for another shape, or verdicts out of range.
    """
    return JudgingReranker(jnp.asarray(judged(verdicts).verdicts))


def available_at(
    environment: Environment, t: Int[Array, ""], available: Bool[Array, " I"]
) -> Bool[Array, " I"]:
    """Return the mask of the items that are available in a round.

    Args:
      environment: environment, of which times and effects with ``available_at`` are used.
      t: number of the round.
      available: mask of the items of the catalogue [I], False for padding.

    Returns:
      [I].
    """
    available = available & _by_times(environment, t, t)
    for one in effects_with(environment, "available_at"):
        available = available & one.effect.available_at(t, available)
    return available


def always_available(
    environment: Environment, rounds: int, available: Bool[Array, " I"]
) -> Bool[Array, " I"]:
    """Return the mask of the items that are available in every round of a run.

    Args:
      environment: environment, of which times and effects with ``available_at`` are used.
      rounds: T; the rounds are 0 .. T - 1.
      available: mask of the items of the catalogue [I], False for padding.

    Returns:
      [I].
    """
    available = available & _by_times(environment, 0, rounds - 1)
    if effects_with(environment, "available_at"):
        return lax.fori_loop(
            0, rounds, lambda t, always: available_at(environment, t, always), available
        )
    return available


def _by_times(environment: Environment, first: Any, last: Any) -> Any:
    """Return which items have arrived by round ``first`` and not left by round ``last``."""
    arrives, leaves = environment.arrives, environment.leaves
    arrived = True if arrives is None else arrives <= first
    not_left = True if leaves is None else last < leaves
    if arrives is None or leaves is None:
        return arrived & not_left
    return jnp.where(leaves < arrives, arrived | not_left, arrived & not_left)


def queries_at(
    environment: Environment, t: Int[Array, ""], query: Int[Array, ""], vector: Float[Array, " d"]
) -> Float[Array, " d"]:
    """Return the vector of a query in a round.

    Args:
      environment: environment, of which effects with ``queries_at`` are used.
      t: number of the round.
      query: position of the query among the N queries.
      vector: query of the stream [d].

    Returns:
      [d].
    """
    for one in effects_with(environment, "queries_at"):
        vector = one.effect.queries_at(t, query, vector)
    return vector


def labels_at(
    environment: Environment, t: Int[Array, ""], query: Int[Array, ""], labels: Int[Array, " L"]
) -> Int[Array, " L"]:
    """Return the right labels of a query in a round.

    Args:
      environment: environment, of which effects with ``labels_at`` are used.
      t: number of the round.
      query: position of the query among the N queries.
      labels: labels of the query in the stream [L], -1 pads.

    Returns:
      [L], -1 pads.
    """
    for one in effects_with(environment, "labels_at"):
        labels = one.effect.labels_at(t, query, labels)
    return labels


def respond(
    environment: Environment,
    key: PRNGKey,
    slate: Slate,
    labels: Int[Array, " L"],
    query: Int[Array, ""],
) -> tuple[Choice, Feedback, Float[Array, ""]]:
    """Pick the used item of a slate and return the feedback.

    Args:
      environment: environment of the round.
      key: random key of the round; consumed.
      slate: the k items shown.
      labels: right labels of this round [L], -1 pads.
      query: position of the query among the N queries.

    Returns:
      The choice; the feedback, without labels, and with reward 0 if unobserved; and the success [],
      which a noisy reward may contradict.
    """
    coin, lot = jax.random.split(key)
    if environment.reranker is None or slate.items.shape[0] == 1:  # no choice
        position = jnp.zeros((), jnp.int32)
    else:
        position = environment.reranker(lot, slate, labels, query)
    choice = Choice(item=slate.items[position], propensity=slate.propensity[position])
    empty, real = choice.item == EMPTY, labels >= 0
    success = jnp.where(empty, ~real.any(), ((choice.item == labels) & real).any())
    dtype = slate.propensity.dtype
    reward = success.astype(dtype)
    if environment.verdicts is not None:
        reward = environment.verdicts[query, choice.item].astype(dtype)
    if environment.noise_rate is not None:
        rates = jnp.asarray(environment.noise_rate)
        inverted = jax.random.uniform(coin) < (rates[choice.item] if rates.ndim else rates)
        reward = jnp.where(inverted, 1 - reward, reward)
    for one in effects_with(environment, "reward_of"):
        draw = jax.random.fold_in(key, one.number)
        reward = one.effect.reward_of(draw, choice.item, query, reward)
    of_empty = 0.0 if environment.empty_reward is None else environment.empty_reward
    reward = jnp.where(empty, (of_empty * success).astype(dtype), reward)
    feedback = Feedback(reward=reward)
    for one in effects_with(environment, "is_observed"):
        observed = one.effect.is_observed(jax.random.fold_in(key, one.number), success)
        observed = feedback.observed & observed
        feedback = Feedback(reward=jnp.where(observed, reward, 0), observed=observed)
    return choice, feedback, success.astype(dtype)


def with_interventions(
    learner: Learner, environment: Environment, key: PRNGKey, *, labels: int
) -> Learner:
    """Wrap a learner so that its updates include the interventions of an environment.

    Args:
      learner: any learner; returned unchanged if there are no interventions.
      environment: environment, of which effects with ``deliver`` or ``change`` are used.
      key: random key of the whole run.
      labels: L, the length of the labels that an oracle is given.

    Raises:
      ValueError: if several effects deliver answers.
    """
    found = effects_with(environment, "deliver", "change")
    if not found:
        return learner
    return interventions.intervened(
        learner,
        [(one.number, one.effect) for one in found],
        key,
        labels=labels,
        always_observed=not effects_with(environment, "is_observed"),
        tools_change=tools_change(environment),
    )


def effects_with(environment: Environment, *methods: str) -> list[Effect]:
    """List the effects that have any of the given methods, in the order in which they apply."""
    found = [(name, getattr(environment, name)) for name in _BUILT_IN]
    found += [(f"effects[{i}]", one) for i, one in enumerate(environment.effects)]
    return [
        Effect(name, number, one)
        for number, (name, one) in enumerate(found)
        if any(hasattr(one, method) for method in methods)
    ]


def intervenes(environment: Environment) -> bool:
    """Return whether an effect intervenes on the learner, which only the plain scan supports."""
    return bool(effects_with(environment, "deliver", "change"))


def tools_change(environment: Environment) -> bool:
    """Return whether the available tools change over time."""
    times = environment.arrives, environment.leaves
    return any(time is not None for time in times) or bool(
        effects_with(environment, "available_at")
    )


def require_environment(
    environment: Environment, *, queries: int, items: int, width: int, labels: int
) -> None:
    """Check that an environment fits a task; traced values are not checked.

    Args:
      environment: any environment.
      queries: N of the task.
      items: I of the task.
      width: d of the task.
      labels: L of the task.

    Raises:
      ValueError: if an array has another shape than its type declares, the noise is out of range,
        or an entry of ``effects`` is not a NamedTuple with a method of an effect.
    """
    sizes = {"N": queries, "I": items, "d": width, "L": labels}
    parts = {name: value for name, value in environment._asdict().items() if name != "effects"}
    own = {f"effects[{i}]": one for i, one in enumerate(environment.effects)}
    for name, one in own.items():
        if not hasattr(one, "_fields") or not any(hasattr(one, method) for method in _METHODS):
            raise ValueError(
                f"{name} must be a NamedTuple with one of the methods {', '.join(_METHODS)}; "
                f"got a {type(one).__name__}"
            )
    _require_shapes("", environment, sizes)
    for name, one in (parts | own).items():
        if hasattr(one, "_fields"):
            _require_shapes(f"{name}.", one, sizes)
    rate, allowed = environment.noise_rate, "None or in [0, 0.5]"
    require("noise_rate", rate, allowed, lambda x: x is None or _are_noise_rates(x))
    given = environment.empty_reward
    require("empty_reward", given, "None or in [0, 1]", lambda x: x is None or 0 <= x <= 1)


def padded(environment: Environment, items: int) -> Environment:
    """Pad the arrays that are declared ``SHARDED`` with zeros, along their axis of items."""

    def pad(value, axes):
        if "I" not in axes:
            return value
        missing = items - np.shape(value)[axes.index("I")]
        return jnp.pad(jnp.asarray(value), [(0, missing if a == "I" else 0) for a in axes])

    return _map_arrays(environment, pad)


def partition_specs(environment: Environment, axis: str) -> Environment:
    """Return the PartitionSpec of each array of an environment, for `jax.shard_map`.

    Args:
      environment: environment without a reranker; the fields of its effects are arrays and numbers.
      axis: mesh axis over which the items are split.

    Returns:
      An environment of specs.
    """

    def spec(value, axes):
        del value
        return P(*(axis if letter == "I" else None for letter in axes))

    return _map_arrays(environment, spec)


def _map_arrays(one: Any, change: Callable[[Any, tuple[str, ...]], Any]) -> Any:
    """Change each array of an environment, an effect, or a tuple of effects.

    Args:
      one: environment, effect or tuple; None stays None.
      change: function of an array and the letters of its axes, () unless declared ``SHARDED``.
    """
    if not hasattr(one, "_fields"):
        return tuple(_map_arrays(part, change) for part in one)

    def changed(name, value):
        if value is None:
            return None
        if isinstance(value, tuple):
            return _map_arrays(value, change)
        return change(value, _axes(one, name) if name in getattr(one, "SHARDED", ()) else ())

    return type(one)._make(changed(*field) for field in one._asdict().items())


def _axes(one: Any, name: str) -> tuple[str, ...]:
    """Return the letters of the axes of a field that is declared ``SHARDED``."""
    rank = len(np.shape(getattr(one, name)))
    for axes in _declared_shapes(type(one)).get(name, ()):
        if len(axes) == rank and "I" in axes:
            return axes
    raise ValueError(f"{type(one).__name__}.{name} is declared SHARDED and has no axis I")


@cache
def _declared_shapes(kind: type) -> dict[str, list[tuple[str, ...]]]:
    """Read the shapes that the annotations of a NamedTuple allow for each of its arrays."""

    def shapes(annotation):
        if hasattr(annotation, "dim_str"):
            return [tuple(annotation.dim_str.split())]
        return [shape for part in get_args(annotation) for shape in shapes(part)]

    hints = get_type_hints(kind)
    return {name: found for name, hint in hints.items() if (found := shapes(hint))}


def _fits(shape: tuple[int | str, ...], found: tuple[int, ...]) -> bool:
    """Return whether an array has a declared shape; a letter stands for any size."""
    if len(shape) != len(found):
        return False
    return all(isinstance(n, str) or n == m for n, m in zip(shape, found, strict=True))


def _require_shapes(prefix: str, one: Any, sizes: Mapping[str, int]) -> None:
    """Raise ValueError if an array of an effect or environment has an undeclared shape."""
    words = {"N": "N queries", "I": "I items", "d": "width d", "L": "L labels"}
    for name, allowed in _declared_shapes(type(one)).items():
        if (value := getattr(one, name)) is None:
            continue
        found = np.shape(value)
        shapes = [tuple(sizes.get(letter, letter) for letter in axes) for axes in allowed]

        if not any(_fits(shape, found) for shape in shapes):
            raise ValueError(
                f"the shape of {prefix}{name} must be {' or '.join(map(str, shapes))} "
                f"[{', '.join(words.get(letter, letter) for letter in allowed[-1])}], got {found}"
            )
