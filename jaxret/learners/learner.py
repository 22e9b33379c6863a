"""The contract of an online learner: what every learner can do, as pure functions over a `State`.

    slate <- act(state, query, key)                  shows something
    state <- update(state, query, choice, feedback)  learns from what came back

One that learns from bits is never given labels: loss and regret are measured outside of it
(`jaxret.simulation.trace`). Most learners are rank one, and made by `jaxret.learners.rank_one`.

Letters: I items, d width, N queries, n past rounds, k items shown.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxret.learners.narrow_rows import Rounding
from jaxret.rules.estimators import Estimator
from jaxret.rules.policies import Policy
from jaxret.rules.preconditioners import Preconditioner
from jaxret.rules.projections import Projection
from jaxret.rules.query_maps import QueryMap
from jaxret.rules.schedules import Schedule
from jaxret.types import Choice, Feedback, PRNGKey, Slate, State

TILE = 8  # rounds between two reads of what is pending in the blocked form


class Init(Protocol):
    """Starts from item embeddings [I, d]; ``available`` [I] says who is there, None: everyone."""

    def __call__(
        self, theta: Float[Array, "I d"], available: Bool[Array, " I"] | None = None
    ) -> State: ...


class Act(Protocol):
    """Chooses what to show. ``key`` is consumed."""

    def __call__(self, state: State, query: Float[Array, " d"], key: PRNGKey) -> Slate: ...


class Update(Protocol):
    """Learns from what came back; ``state`` is that in which the slate was shown.

    The round is counted, ``t + 1``, also where nothing was observed.
    """

    def __call__(
        self, state: State, query: Float[Array, " d"], choice: Choice, feedback: Feedback
    ) -> State: ...


class OfQuery(Protocol):
    """One number an item: its logit, or its chance to be shown; a query [d] -> [I]."""

    def __call__(self, state: State, query: Float[Array, " d"]) -> Float[Array, " I"]: ...


class Scores(Protocol):
    """What rankings are made by: queries [N, d] -> [N, I], minus infinity where one is absent."""

    def __call__(self, state: State, queries: Float[Array, "N d"]) -> Float[Array, "N I"]: ...


class MapQueries(Protocol):
    """Queries as the rows are compared with them: [N, d] -> [N, d]."""

    def __call__(self, state: State, queries: Float[Array, "N d"]) -> Float[Array, "N d"]: ...


class Relearn(Protocol):
    """Learns once more from n past rounds, all of them at today's state, which stays in its round.

    Args:
      state: today's.
      queries: [n, d].
      choices: what was used then, fields [n].
      rewards: [n].
      counts: [n], 0 for a round that is to be left out, otherwise 1.
    """

    def __call__(
        self,
        state: State,
        queries: Float[Array, "n d"],
        choices: Choice,
        rewards: Float[Array, " n"],
        counts: Float[Array, " n"],
    ) -> State: ...


class OverRows(Protocol):
    """Changes the rows that stand for tools, wherever a state keeps them: each [I, d] -> [I, d]."""

    def __call__(
        self, state: State, change: Callable[[Float[Array, "I d"]], Float[Array, "I d"]]
    ) -> State: ...


class Mixing(NamedTuple):
    """What a mixture of G experts says of itself (`jaxret.learners.mixture`)."""

    experts: tuple[str, ...]  # their names and settings
    prior: tuple[float, ...]  # sums to 1
    alpha: float | Float[Array, ""]
    beta: float | Float[Array, ""]
    expert: Callable[[State, int], tuple["Learner", State]]  # the g-th, and its own state


class Rule(NamedTuple):
    """The parts of a rank-one learner."""

    policy: Policy
    estimator: Estimator
    projection: Projection
    schedule: Schedule
    tau: float | Float[Array, ""]
    eta: float | Float[Array, ""]
    query_map: QueryMap | None = None
    map_every: int = 1  # rounds between two moves of the map
    preconditioner: Preconditioner | None = None
    rounding: Rounding | None = None  # of rows that are kept in bfloat16; None: they are not

    @property
    def rows_alone(self) -> bool:
        """Whether nothing but rows moves, along the queries as they are."""
        return self.query_map is None and self.preconditioner is None

    @property
    def blocked(self) -> bool:
        """Whether it has the exact blocked form: a map stands still for whole tiles of rounds."""
        stands_still = self.query_map is None or self.map_every % TILE == 0
        return stands_still and (self.preconditioner is None or self.preconditioner.by_row)


class Replay(NamedTuple):
    """How a rank-one learner learns from past bits again (`with_experience_replay`)."""

    rule: Rule
    per_round: int
    capacity: int
    seed: int


class Blend(NamedTuple):
    """The parts of a mixture of G rank-one learners (`jaxret.learners.mixing`)."""

    forms: tuple[Any, ...]  # a `LearnerGrid` for each kind of expert; G settings together
    policy: Policy
    log_prior: tuple[float, ...]  # [G]; hashable, as a learner is
    alpha: float | Float[Array, ""]
    beta: float | Float[Array, ""]
    floor: float


class Learner(NamedTuple):
    """A learner: five functions, and what it says of itself.

    ``logits`` is None where a rule has no softmax: then it has no loss, regret or bounds.
    """

    name: str
    init: Init
    act: Act
    update: Update
    logits: OfQuery | None
    scores: Scores
    oracle: bool = False  # is given the labels
    map_queries: MapQueries | None = None  # None: rows are compared with queries as they are
    chances: OfQuery | None = None  # with which each item is shown; None: not known
    relearn: Relearn | None = None  # None: cannot
    rule: Rule | None = None  # None: not rank one
    replay: Replay | None = None  # None: each bit is learnt from once, or not by a rule
    mixing: Mixing | None = None  # None: no mixture
    blend: Blend | None = None  # None: no mixture, or not by these parts alone
    over_rows: OverRows | None = None  # None: ``State.theta`` holds all rows
    origin: tuple[str, str] | None = None  # the preset, and its settings as JSON


def where_observed(feedback: Feedback, state: State, new: State) -> State:
    """The new state, or where nothing was observed the old one; a round later in either case."""
    after = state._replace(t=state.t + 1)
    new = new._replace(t=after.t)
    if feedback.observed is True:
        return new
    return jax.tree.map(lambda x, y: jnp.where(feedback.observed, x, y), new, after)
