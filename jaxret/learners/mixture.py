"""A mixture of experts, weighted online by how well each expert predicts the rewards.

    mixture()                                                       no settings to choose
    mixture([grid(frozen, tau=[0.01, 0.04]), grid(centred, tau=[0.02, 0.04])])

Each of G experts is a learner that begins at the documents. Its softmax p_g gives P_g(a), the
predicted probability that item a is right for query q. With weights w_g:

    calibrate   P_g(a) = sigmoid(u_g logit p_g(a) + v_g)            u = 1, v = 0 at first
    show        argmax_a  sum_g w_g P_g(a)                          or a draw, by another policy
    weight      w_g <- w_g P_g(y | q, a)^beta, normalised           Bayes where beta = 1
                w <- (1 - alpha) w + alpha prior                    the fixed share
    learn       every expert from the same reward, and its u and v

No labels are used, only the likelihood of the reward of the item shown: nothing is divided by a
propensity, and an expert is also judged on items that it would not have shown. The calibration u
and v is needed because the softmax of an expert depends on its temperature, and an expert that
ranks well must not lose to one that is merely well calibrated. If a query has L right items, each
with reward 1, a softmax can assign them at most 1 / L on average: v corrects that too, and the P_g
of a query need not sum to one.

The mixed probability of an item is less extreme than it should be, since it is a mean of calibrated
ones. `jaxret.learners.recalibration` corrects it for `jaxret.learners.confidence` only: the
mixture itself neither shows items nor learns by the correction.

If all experts have a blocked form, as the default ones do, the mixture has one, too
(`jaxret.simulation.blocked.mixture`).

Sources: mixtures under log loss, Vovk (1990); the fixed share, Herbster and Warmuth (1998);
calibration by a slope and an offset, Platt (1999), learnt here by online Newton steps. The bounds
are in `jaxret.theory.mixture`.

Letters: I items, d width, N queries, G experts, g of one kind, n numbers of a setting, k items
shown.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.learners import presets
from jaxret.learners.grid import LearnerGrid, grid, paired
from jaxret.learners.learner import (
    ChangeRows,
    Facts,
    Learner,
    acting_by,
    first_state,
    query_for,
    vector_of,
    where_observed,
)
from jaxret.learners.offsets import informed
from jaxret.learners.rank_one import rule_of
from jaxret.learners.recalibration import (
    Recalibration,
    first_recalibration,
    learn,
    recalibrate,
)
from jaxret.learners.registry import preset
from jaxret.learners.wrappers import Wrapped, innermost
from jaxret.rules import policies
from jaxret.rules.policies import Policy
from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.runtime.validate import require
from jaxret.types import State

SMALLEST = 1e-30  # smallest probability whose logarithm is taken
SOFTMAX_RANGE = (1e-12, 1 - 1e-6)  # clips an expert's softmax, to keep its logit finite
LEAST = np.array([0.1, -np.inf], np.float32)  # minima of u and v; u > 0 preserves the ranking


class Calibration(NamedTuple):
    """Online Platt scaling: a slope and an offset per expert.

    Attributes:
      line: u and v of each expert [G, 2].
      precision: precision of a Gaussian posterior of u and v [G, 2, 2]; it grows with each reward.
    """

    line: Float[Array, "G 2"]
    precision: Float[Array, "G 2 2"]


class ExpertRows(NamedTuple):
    """Rows and extra state of the experts of one kind; every leaf has a leading axis [g]."""

    theta: Any  # [g, I, d]; () for experts that stay at the documents
    extra: Any  # ``State.extra`` of the experts, such as their usage


class MixtureExtra(NamedTuple):
    """``State.extra`` of a mixture.

    Attributes:
      log_weights: logarithms of weights that sum to 1 [G].
      losses: sums of -ln P(y | q, a), of the mixture and then of each expert [1 + G].
      rounding: rounding errors of the sums so far (Kahan) [1 + G].
      calibration: calibration of the experts.
      sure: number of rounds in which the item shown was predicted to be right, and number of those
        in which it was wrong [2].
      outer: recalibration of the mixed probability, which nothing else in the mixture reads.
      rows: `ExpertRows` of each kind.
    """

    log_weights: Float[Array, " G"]
    losses: Float[Array, "1+G"]
    rounding: Float[Array, "1+G"]
    calibration: Calibration
    sure: Int[Array, " 2"]
    outer: Recalibration
    rows: tuple[ExpertRows, ...]


class Blend(NamedTuple):
    """The structure of a mixture of G experts."""

    kinds: tuple[LearnerGrid, ...]  # a `LearnerGrid` per kind of expert, with G settings in total
    policy: Policy  # maps the mixed probabilities to the items shown
    log_prior: tuple[float, ...]  # [G]; a tuple, so that a learner can be hashed
    alpha: float | Float[Array, ""]  # share of the weights that returns to the prior each round
    beta: float | Float[Array, ""]  # power of the likelihood
    floor: float  # every P_g is clipped to [floor, 1 - floor]

    @property
    def experts(self) -> tuple[str, ...]:
        """Names and settings of the experts."""
        return tuple(
            f"{kind.name}({kind.label(setting)})"
            for kind in self.kinds
            for setting in kind.settings
        )

    @property
    def prior(self) -> tuple[float, ...]:
        """Initial weights of the experts, which sum to 1."""
        return tuple(np.exp(self.log_prior).tolist())

    def expert(self, state: State, g: int) -> tuple[Learner, State]:
        """Return the g-th expert and its state."""
        positions = [(j, i) for j, kind in enumerate(self.kinds) for i in range(len(kind.settings))]
        j, i = positions[g]
        rows = jax.tree.map(lambda x: x[i], state.extra.rows[j])
        return self.kinds[j].learner(i), expert_state(state, rows)

    def change_rows(self, state: State, change: ChangeRows) -> State:
        """Apply a function [I, d] -> [I', d] to the documents and to the rows of every expert."""

        def changed(rows):
            if isinstance(rows.theta, tuple):
                return rows
            return rows._replace(theta=jax.vmap(change)(rows.theta))

        rows = tuple(changed(rows) for rows in state.extra.rows)
        return state._replace(theta=change(state.theta), extra=state.extra._replace(rows=rows))

    def map_queries(self, state: State, queries: Float[Array, "N d"]) -> Float[Array, "N d"]:
        """Return the queries unchanged: every expert has its own map.

        Returns:
          [N, d].
        """
        return queries


@preset
def mixture(
    experts: Sequence[LearnerGrid] | None = None,
    *,
    alpha: float = 0.01,
    beta: float = 1.0,
    floor: float = 1e-3,
    trust: float = 10.0,
    prior: Sequence[float] | None = None,
    policy: Policy | None = None,
) -> Learner:
    """Mix experts by Bayes' rule, using only rewards.

    Args:
      experts: learners with a softmax, grouped by kind (`grid`); each kind is one compiled
        program, and experts that never move share the documents. None: `default_experts`.
      alpha: share of the weights that returns to the prior each round, in [0, 1); 0 is Bayes.
      beta: power of the likelihood, > 0; the bounds need it to be at most 1.
      floor: every P_g is clipped to [floor, 1 - floor], in (0, 0.5), so that one confident error
        does not remove an expert for good.
      trust: precision of the Gaussian prior at u = 1 and v = 0, > 0; 1e6 all but fixes u and v.
      prior: initial weights of the G experts, > 0; None: equal weights.
      policy: maps the mixed probabilities to the items shown; None: greedy.

    Raises:
      ValueError: if an expert is an oracle or has no softmax, experts read different numbers of
        prior scores, the prior has another length, or a number is out of its range.
    """
    kinds = default_experts() if experts is None else list(experts)
    named = [getattr(kind, "name", type(kind).__name__) for kind in kinds]
    known = all(isinstance(kind, LearnerGrid) for kind in kinds)
    require("experts", named, "one grid or more, from jr.grid(..)", lambda _: kinds and known)
    learners = [kind.learner(g) for kind in kinds for g in range(len(kind.settings))]
    for one in learners:
        _require_expert(one)
    widths = {one.facts.prior_width for one in learners}
    if len(widths - {0}) > 1:
        raise ValueError(
            f"experts that read prior scores must have one width, got {sorted(widths - {0})}"
        )
    require("alpha", alpha, "in [0, 1)", lambda x: 0 <= x < 1)
    require("beta", beta, "> 0", lambda x: x > 0)
    require("floor", floor, "in (0, 0.5)", lambda x: 0 < x < 0.5)
    require("trust", trust, "> 0", lambda x: x > 0)
    shares = np.ones(len(learners)) if prior is None else np.asarray(prior, np.float64)
    require("prior", prior, f"{len(learners)} numbers", lambda _: len(shares) == len(learners))
    require("prior", prior, "> 0", lambda _: (shares > 0).all())
    log_prior = tuple(np.log(shares / shares.sum()).tolist())
    policy = policy or policies.greedy()
    blend = Blend(tuple(kinds), policy, log_prior, alpha, beta, floor)

    def init(theta, available=None):
        def first(kind):
            one = jax.vmap(lambda numbers: kind.family(*numbers).init(theta, available))
            states = one(jnp.asarray(kind.settings, theta.dtype))
            return ExpertRows(theta=() if is_frozen(kind) else states.theta, extra=states.extra)

        nothing = jnp.zeros(1 + len(learners), theta.dtype)
        extra = MixtureExtra(
            log_weights=jnp.asarray(log_prior, theta.dtype),
            losses=nothing,
            rounding=nothing,
            calibration=first_calibration(len(learners), trust, theta.dtype),
            sure=jnp.zeros(2, jnp.int32),
            outer=first_recalibration(theta.dtype),
            rows=tuple(first(kind) for kind in kinds),
        )
        return first_state(theta, available, extra)

    def each(state, kind, rows, function: Callable[[Learner, State], Any]):
        """Map a function over the experts of a kind."""

        def one(numbers, row):
            return function(kind.family(*numbers), expert_state(state, row))

        return jax.vmap(one)(jnp.asarray(kind.settings, state.theta.dtype), rows)

    def all_logits(state, query):
        def one(learner, own):
            return learner.logits(own, query_for(learner, query))

        pairs = zip(kinds, state.extra.rows, strict=True)
        z = jnp.concatenate([each(state, kind, rows, one) for kind, rows in pairs])
        return expert_logits(z, None)

    def logits(state, query):
        return mixed_logits(state.extra, all_logits(state, query), state.available)

    def scores(state, queries):
        def add(kind, total, line):  # one expert at a time, to avoid an array [G, N, I]
            weight, uv, numbers, row = line
            learner, own = kind.family(*numbers), expert_state(state, row)
            z = jax.vmap(partial(learner.logits, own))(query_for(learner, queries))
            return total + weight * calibrate(uv, logit(jax.nn.softmax(z, axis=-1))), None

        ends = np.cumsum([len(kind.settings) for kind in kinds])[:-1]
        weights = jnp.split(jnp.exp(state.extra.log_weights), ends)
        lines = jnp.split(state.extra.calibration.line, ends)
        vectors = vector_of(queries)
        total = jnp.zeros((len(vectors), len(state.theta)), vectors.dtype)
        with jax.default_matmul_precision("highest"):  # else accelerators round scores into ties
            if len(vectors) == 1:  # the logits, which a program that also chooses computes once
                return logits(state, jax.tree.map(lambda x: x[0], queries))[None]
            for kind, *some, rows in zip(kinds, weights, lines, state.extra.rows, strict=True):
                numbers = jnp.asarray(kind.settings, state.theta.dtype)
                total, _ = lax.scan(partial(add, kind), total, (*some, numbers, rows))
        return masked_log(total, state.available)

    def update(state, query, choice, feedback):
        predicted = all_logits(state, query)[:, choice.item]  # [G] or [G, k]
        extra = update_weights(blend, state.extra, predicted, feedback.reward)
        seen = feedback._replace(observed=True)

        def learn(kind, rows):
            if is_frozen(kind) and not jax.tree.leaves(rows):
                return rows

            def step(learner, own):
                new = learner.update(own, query_for(learner, query), choice, seen)
                return ExpertRows(theta=() if is_frozen(kind) else new.theta, extra=new.extra)

            return each(state, kind, rows, step)

        pairs = zip(kinds, extra.rows, strict=True)
        extra = extra._replace(rows=tuple(learn(kind, rows) for kind, rows in pairs))
        return where_observed(feedback, state, state._replace(extra=extra))

    act, probabilities = acting_by(policy, logits)
    return Learner(
        name="mixture",
        init=init,
        act=act,
        update=update,
        scores=scores,
        logits=logits,
        probabilities=probabilities,
        structure=blend,
        facts=Facts(
            prior_width=max(widths),
            prior_required=all(one.facts.prior_required for one in learners),
        ),
    )


def default_experts(*, map_every: int = 16, offsets: bool = True) -> list[LearnerGrid]:
    """Return the default experts of `mixture`, the same for every data set and encoder.

    Static retrieval by vectors, by vectors and words, and by mostly words; and three learners with
    the match of words and the division by usage (`jaxret.rules.offsets`). Without prior scores the
    term of the words is 0.

    Args:
      map_every: rounds between two updates of the experts' query maps; with a multiple of 8 the
        mixture has a blocked form (`jaxret.simulation.blocked.simulate`), which is faster.
      offsets: whether the experts read words and usage; False: static retrieval by vectors, and
        the three learners without offsets.
    """
    centred = {"tau": [0.04], "eta": [4e-3], "map_every": map_every}
    replayed = {"tau": [0.02], "eta": [6e-4], "map_every": map_every}
    vectors = grid(presets.frozen, tau=[0.02])
    if not offsets:
        return [
            vectors,
            grid(presets.centred, **centred),
            grid(presets.mapped_replayed, **replayed),
            grid(presets.centred_replayed, **replayed),
        ]
    words = {"lexical": [0.25]}
    return [
        vectors,
        paired(presets.hybrid, tau=[0.02] * 2, lexical=[0.25, 0.6], balance=[0.5, 0.0]),
        grid(informed, of=presets.centred, **centred, **words, balance=[1.0]),
        grid(informed, of=presets.mapped_replayed, **replayed, **words, balance=[0.5]),
        grid(informed, of=presets.centred_replayed, **replayed, **words, balance=[1.0]),
    ]


def blend_of(learner: Learner) -> Blend | None:
    """Return the structure of a mixture, also inside wrappers; None for any other learner."""
    while isinstance(structure := learner.structure, Wrapped):
        learner = structure.inner
    return structure if isinstance(structure, Blend) else None


def heaviest(learner: Learner, state: State) -> tuple[Learner, State]:
    """Return the expert with the largest weight, and its state.

    One matrix of rows and one query map can represent an expert, but not the mixture.

    Raises:
      ValueError: if the learner is not a mixture.
    """
    if (blend := blend_of(learner)) is None:
        raise ValueError(f"learner {learner.name!r} is not a mixture: it has no experts")
    _, state = innermost(learner, state)
    g = int(np.argmax(state.extra.log_weights))
    chosen, own = blend.expert(state, g)
    return chosen._replace(name=f"{learner.name}: {blend.experts[g]}"), own


def expert_logits(logits: Float[Array, "G I"], axis: Axis) -> Float[Array, "G I"]:
    """Return ``logit p_g(a)`` of every expert and item, with p_g the softmax of an expert.

    Returns:
      [G, I].
    """
    return logit(jax.vmap(partial(over_items.softmax, axis=axis))(logits))


def mixed_logits(
    extra: MixtureExtra, predicted: Float[Array, "G I"], available: Bool[Array, " I"]
) -> Float[Array, " I"]:
    """Return ``ln sum_g w_g P_g(a)`` of every item.

    Args:
      extra: extra state of the mixture.
      predicted: `expert_logits` [G, I].
      available: [I].

    Returns:
      logits [I], minus infinity where an item is absent.
    """
    probabilities = jax.vmap(calibrate)(extra.calibration.line, predicted)
    return masked_log(jnp.exp(extra.log_weights) @ probabilities, available)


def confidence_of(extra: MixtureExtra, mixed: Float[Array, " I"]) -> Float[Array, " I"]:
    """Return the calibrated probability that each item works.

    Args:
      extra: extra state of the mixture.
      mixed: `mixed_logits` [I].

    Returns:
      [I], 0 where an item is absent.
    """
    return jnp.where(jnp.isfinite(mixed), recalibrate(extra.outer, jnp.exp(mixed)), 0)


def update_weights(
    blend: Blend, extra: MixtureExtra, predicted: Float[Array, "G *k"], y: Float[Array, "*k"]
) -> MixtureExtra:
    """Update weights, losses and calibrations by the reward of a round, but not the rows.

    Args:
      blend: structure with alpha, beta, floor and the prior.
      extra: extra state before the round.
      predicted: `expert_logits` of the item shown [G], or of each of k items [G, k].
      y: rewards [] or [k].
    """
    floor, each = blend.floor, jax.vmap(calibrate)(extra.calibration.line, predicted)
    p = jnp.clip(each, floor, 1 - floor)
    log_p = jax.vmap(lambda p: (y * jnp.log(p) + (1 - y) * jnp.log1p(-p)).sum())(p)
    joint = extra.log_weights + log_p
    new_losses = -jnp.concatenate([jax.nn.logsumexp(joint)[None], log_p])
    losses, rounding = _add(extra.losses, extra.rounding, new_losses)
    weights = jax.nn.log_softmax(extra.log_weights + blend.beta * log_p)
    back = jnp.asarray(blend.log_prior, weights.dtype)
    weights = jnp.logaddexp(jnp.log1p(-blend.alpha) + weights, jnp.log(blend.alpha) + back)
    works = jnp.exp(extra.log_weights) @ p >= 0.5
    sure = jnp.stack([works, works & (y < 0.5)])
    return extra._replace(
        log_weights=weights,
        losses=losses,
        rounding=rounding,
        calibration=jax.vmap(newton_step, (0, 0, None))(extra.calibration, predicted, y),
        sure=extra.sure + sure.reshape(2, -1).sum(axis=1).astype(extra.sure.dtype),
        outer=learn(extra.outer, jnp.tensordot(jnp.exp(extra.log_weights), each, 1), y),
    )


def expert_state(state: State, rows: ExpertRows) -> State:
    """Return the state of one expert, with the available items and round of the mixture."""
    theta = state.theta if isinstance(rows.theta, tuple) else rows.theta
    return State(theta=theta, available=state.available, t=state.t, extra=rows.extra)


def is_frozen(kind: LearnerGrid) -> bool:
    """Return whether every expert of a kind stays at the documents."""
    rules = [rule_of(kind.learner(g)) for g in range(len(kind.settings))]
    return all(
        rule is not None
        and rule.rows_alone
        and rule.projection.name == "none"
        and rule.estimator.name == "none"
        for rule in rules
    )


def masked_log(p: Float[Array, "*n I"], available: Bool[Array, " I"]) -> Float[Array, "*n I"]:
    """Return logarithms of probabilities that may be 0; minus infinity where an item is absent.

    Returns:
      logits [..., I].
    """
    return jnp.where(available, jnp.log(jnp.maximum(p, SMALLEST)), -jnp.inf)


def first_calibration(experts: int, trust: float, dtype: Any) -> Calibration:
    """Return the initial calibration, u = 1 and v = 0 for every expert.

    Args:
      experts: G.
      trust: precision of the Gaussian prior.
      dtype: dtype of the arrays.
    """
    line = jnp.tile(jnp.array([1.0, 0.0], dtype), (experts, 1))
    precision = jnp.tile(trust * jnp.eye(2, dtype=dtype), (experts, 1, 1))
    return Calibration(line=line, precision=precision)


def newton_step(
    calibration: Calibration, predicted: Float[Array, "*k"], y: Float[Array, "*k"]
) -> Calibration:
    """Move u and v of one expert by a Newton step of the logistic loss.

    Args:
      calibration: calibration of one expert: line [2], precision [2, 2].
      predicted: the expert's logits of the items shown [] or [k].
      y: rewards of the items shown [] or [k].
    """
    line, precision = calibration
    x = jnp.stack([predicted, jnp.ones_like(predicted)], axis=-1).reshape(-1, 2)  # [k, 2]
    p = calibrate(line, predicted).reshape(-1)
    precision = precision + jnp.einsum("k,ki,kj->ij", p * (1 - p), x, x)
    (a, b), (_, d) = precision
    along, down = x.T @ (jnp.reshape(y, -1) - p)
    step = jnp.stack([d * along - b * down, a * down - b * along]) / (a * d - b * b)
    return Calibration(jnp.maximum(line + step, LEAST), precision)


def calibrate(line: Float[Array, " 2"], predicted: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Return ``sigmoid(u predicted + v)``.

    Returns:
      probabilities [...].
    """
    return jax.nn.sigmoid(line[0] * predicted + line[1])


def logit(p: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Return ``ln(p / (1 - p))``, with p clipped to `SOFTMAX_RANGE`.

    Returns:
      logits [...].
    """
    p = jnp.clip(p, *SOFTMAX_RANGE)
    return jnp.log(p) - jnp.log1p(-p)


def _add(
    sums: Float[Array, "*n"], lost: Float[Array, "*n"], more: Float[Array, "*n"]
) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """Add to running sums by compensated summation (Kahan 1965)."""
    more = more - lost
    new = sums + more
    return new, (new - sums) - more


def _require_expert(learner: Learner) -> None:
    if learner.facts.oracle:
        raise ValueError(f"expert {learner.name!r} is an oracle: a mixture learns from rewards")
    if learner.logits is None:
        raise ValueError(
            f"expert {learner.name!r} has no softmax: it does not predict how probable a reward is"
        )
