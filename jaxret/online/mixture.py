"""Bayes over learners: which rule and which settings are right is learnt from the bits, too.

    mixture()                                                       nothing to set
    mixture([grid(frozen, tau=[0.01, 0.04]), grid(centred, tau=[0.02, 0.04])])

Each of G experts is a learner of its own, started from the documents, that says how probable it is
that tool a works for query q: P_g(a), made of its softmax p_g. With weights w_g:

    believe   P_g(a) = sigmoid(u_g logit p_g(a) + v_g)              u = 1, v = 0 at first
    show      argmax_a  sum_g w_g P_g(a)                            or a draw, as a policy has it
    weigh     w_g <- w_g P_g(y | q, a)^beta, to sum 1               Bayes where beta = 1
              w <- (1 - alpha) w + alpha prior                      the fixed share
    learn     every expert from the same bit, and its u and v

No label chooses anything. Only the likelihood of the bit of the tool that was shown is used, so
nothing is divided by a propensity, and an expert is judged on tools that it would not have shown.
u and v are there since what a softmax says is only as good as its temperature, and an expert that
ranks well must not lose to one that is well calibrated. Where a query has L right tools the bits of
all of them are 1, and a softmax, which sums to one, can say 1 / L of each at best: v puts that
right, too, and the P_g of a query need not sum to one.

Sources: mixtures under log loss, Vovk (1990); the fixed share, Herbster and Warmuth (1998); two
numbers that calibrate, Platt (1999), learnt here by online Newton steps. What can be proved of it
is in `jaxret.theory.mixture`.

Letters: I items, d width, N queries, G experts, n numbers of one of them, k items shown.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret import over_items
from jaxret.online import calibration, policies, presets
from jaxret.online.calibration import Calibration
from jaxret.online.grids import LearnerGrid, grid
from jaxret.online.learner import Learner, Mixing, where_observed
from jaxret.online.origins import preset
from jaxret.online.policies import Policy
from jaxret.types import State
from jaxret.validate import require

SMALLEST = 1e-30  # a probability whose logarithm is finite in every precision


class Rows(NamedTuple):
    """What the experts of one form have learnt; every leaf begins with them, [g, ..]."""

    theta: Any  # [g, I, d]; () for experts that stay at the documents
    extra: Any


class Mixed(NamedTuple):
    """`State.extra` of a mixture."""

    log_weights: Float[Array, " G"]  # of weights that sum to 1
    losses: Float[Array, "1+G"]  # of the mixture, then of each expert: sums of -ln P(y | q, a)
    rounding: Float[Array, "1+G"]  # what the sums have lost so far (Kahan)
    calibration: Calibration
    sure: Int[Array, " 2"]  # rounds in which the tool shown was believed to work; where it did not
    rows: tuple[Rows, ...]  # of each form


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
    """Bayes over settings, from bits alone: nothing to tune.

    Args:
      experts: learners with a softmax, those of one form together (`grid`); all are compiled as
        one program a form, and those that never move share the documents. None: `default_experts`.
      alpha: share of the weights that returns to the prior each round, in [0, 1); 0 is Bayes.
      beta: power of the likelihood, > 0; the bounds want it at most 1.
      floor: every P_g is kept in [floor, 1 - floor], in (0, 0.5): one sure expert that errs
        once is not lost for ever.
      trust: how firmly u = 1 and v = 0 are believed at the start (the precision of a Gaussian
        prior), > 0; a million takes every expert at its word.
      prior: weights of the G experts at the start, > 0; None: equal ones.
      policy: what is shown of the mixed probabilities; None: the best.

    Raises:
      ValueError: for an expert that is given labels or has no softmax, and a prior of another
        length.
    """
    forms = default_experts() if experts is None else list(experts)
    require("experts", forms, "one grid or more", len)
    learners = [form.learner(g) for form in forms for g in range(len(form.settings))]
    for one in learners:
        _require_expert(one)
    require("alpha", alpha, "in [0, 1)", lambda x: 0 <= x < 1)
    require("beta", beta, "> 0", lambda x: x > 0)
    require("floor", floor, "in (0, 0.5)", lambda x: 0 < x < 0.5)
    require("trust", trust, "> 0", lambda x: x > 0)
    shares = np.ones(len(learners)) if prior is None else np.asarray(prior, np.float64)
    require("prior", prior, f"{len(learners)} numbers", lambda _: len(shares) == len(learners))
    require("prior", prior, "> 0", lambda _: (shares > 0).all())
    log_prior = np.log(shares / shares.sum())
    policy = policy or policies.greedy()
    shown_of = policy.chances

    def init(theta, available=None):
        here = jnp.ones(len(theta), bool) if available is None else available

        def begun(form):
            if _stays(form):
                return Rows(theta=(), extra=())
            one = jax.vmap(lambda numbers: form.make(*numbers).init(theta, here))
            states = one(jnp.asarray(form.settings, theta.dtype))
            return Rows(theta=states.theta, extra=states.extra)

        nothing = jnp.zeros(1 + len(learners), theta.dtype)
        extra = Mixed(
            log_weights=jnp.asarray(log_prior, theta.dtype),
            losses=nothing,
            rounding=nothing,
            calibration=calibration.at_its_word(len(learners), trust, theta.dtype),
            sure=jnp.zeros(2, jnp.int32),
            rows=tuple(begun(form) for form in forms),
        )
        return State(theta=theta, available=here, t=jnp.zeros((), jnp.int32), extra=extra)

    def each(state, form, rows, function: Callable[[Learner, State], Any]):
        """A function of every expert of a form and its state, side by side."""

        def one(numbers, row):
            return function(form.make(*numbers), _expert_state(state, row))

        return jax.vmap(one)(jnp.asarray(form.settings, state.theta.dtype), rows)

    def of_all(state, function):
        """A function of every expert, [G, ..]."""
        pairs = zip(forms, state.extra.rows, strict=True)
        return jnp.concatenate([each(state, form, rows, function) for form, rows in pairs])

    def words(state, query):
        """logit p_g(a), [G, I]."""
        z = of_all(state, lambda learner, own: learner.logits(own, query))
        return calibration.logit(jax.vmap(partial(over_items.softmax, axis=None))(z))

    def logits(state, query):
        beliefs = jax.vmap(calibration.believed)(state.extra.calibration.line, words(state, query))
        return _log(jnp.exp(state.extra.log_weights) @ beliefs, state.available)

    def scores(state, queries):
        def add(form, total, line):  # expert by expert: all at once would hold [G, N, I]
            weight, uv, numbers, row = line
            learner, own = form.make(*numbers), _expert_state(state, row)
            z = jax.vmap(partial(learner.logits, own))(queries)
            return total + weight * calibration.believed(
                uv, calibration.logit(jax.nn.softmax(z, axis=-1))
            ), None

        ends = np.cumsum([len(form.settings) for form in forms])[:-1]
        weights = jnp.split(jnp.exp(state.extra.log_weights), ends)
        lines = jnp.split(state.extra.calibration.line, ends)
        mixed = jnp.zeros((len(queries), len(state.theta)), queries.dtype)
        with jax.default_matmul_precision("highest"):  # else accelerators round scores into ties
            for form, *some, rows in zip(forms, weights, lines, state.extra.rows, strict=True):
                numbers = jnp.asarray(form.settings, state.theta.dtype)
                mixed, _ = lax.scan(partial(add, form), mixed, (*some, numbers, rows))
        return _log(mixed, state.available)

    def act(state, query, key):
        return policy.show(key, logits(state, query), None)

    def chances(state, query):
        assert shown_of is not None
        return shown_of(logits(state, query))

    def update(state, query, choice, feedback):
        mixed: Mixed = state.extra
        said, y = words(state, query)[:, choice.item], feedback.reward  # [G] or [G, k]
        p = jnp.clip(jax.vmap(calibration.believed)(mixed.calibration.line, said), floor, 1 - floor)
        log_p = jax.vmap(lambda p: (y * jnp.log(p) + (1 - y) * jnp.log1p(-p)).sum())(p)
        joint = mixed.log_weights + log_p
        new_losses = -jnp.concatenate([jax.nn.logsumexp(joint)[None], log_p])
        losses, rounding = _add(mixed.losses, mixed.rounding, new_losses)
        weights = jax.nn.log_softmax(mixed.log_weights + beta * log_p)
        back = jnp.asarray(log_prior, weights.dtype)
        weights = jnp.logaddexp(jnp.log1p(-alpha) + weights, jnp.log(alpha) + back)
        seen = feedback._replace(observed=True)

        def learnt(form, rows):
            if _stays(form):
                return rows

            def step(learner, own):
                new = learner.update(own, query, choice, seen)
                return Rows(theta=new.theta, extra=new.extra)

            return each(state, form, rows, step)

        pairs = zip(forms, mixed.rows, strict=True)
        rows = tuple(learnt(form, rows) for form, rows in pairs)
        believed = jnp.exp(mixed.log_weights) @ p >= 0.5
        sure = jnp.stack([believed, believed & (y < 0.5)])
        extra = Mixed(
            log_weights=weights,
            losses=losses,
            rounding=rounding,
            calibration=jax.vmap(calibration.recalibrated, (0, 0, None))(
                mixed.calibration, said, y
            ),
            sure=mixed.sure + sure.reshape(2, -1).sum(axis=1).astype(mixed.sure.dtype),
            rows=rows,
        )
        return where_observed(feedback, state, state._replace(extra=extra))

    def over_rows(state, change):
        def changed(rows):
            if isinstance(rows.theta, tuple):
                return rows
            return rows._replace(theta=jax.vmap(change)(rows.theta))

        rows = tuple(changed(rows) for rows in state.extra.rows)
        return state._replace(theta=change(state.theta), extra=state.extra._replace(rows=rows))

    def expert(state, g):
        form, place = places[g]
        rows = jax.tree.map(lambda x: x[place], state.extra.rows[form])
        return learners[g], _expert_state(state, rows)

    places = [(f, g) for f, form in enumerate(forms) for g in range(len(form.settings))]
    mixing = Mixing(
        experts=tuple(f"{forms[f].name}({forms[f].said(forms[f].settings[g])})" for f, g in places),
        prior=tuple(np.exp(log_prior).tolist()),
        alpha=alpha,
        beta=beta,
        expert=expert,
    )
    return Learner(
        name="mixture",
        init=init,
        act=act,
        update=update,
        logits=logits,
        scores=scores,
        chances=None if shown_of is None else chances,
        mixing=mixing,
        over_rows=over_rows,
    )


def heaviest(learner: Learner, state: State) -> tuple[Learner, State]:
    """The expert that a mixture believes most: its learner, and its own state.

    One matrix of rows and one query map stand for it alone, never for the mixture.
    """
    if learner.mixing is None:
        raise ValueError(f"learner {learner.name!r} is no mixture: it has no experts")
    g = int(np.argmax(state.extra.log_weights))
    chosen, own = learner.mixing.expert(state, g)
    return chosen._replace(name=f"{learner.name}: {learner.mixing.experts[g]}"), own


def default_experts() -> list[LearnerGrid]:
    """The experts of `mixture`, for every data set and encoder."""
    return [
        grid(presets.frozen, tau=[0.02]),
        grid(presets.centred, tau=[0.04], eta=[4e-3]),
        grid(presets.mapped_replayed, tau=[0.02], eta=[6e-4]),
        grid(presets.centred_replayed, tau=[0.02], eta=[6e-4]),
    ]


def _log(p: Float[Array, "*n I"], available: Bool[Array, " I"]) -> Float[Array, "*n I"]:
    """Logarithms of probabilities that may have become 0; minus infinity where a tool is absent."""
    return jnp.where(available, jnp.log(jnp.maximum(p, SMALLEST)), -jnp.inf)


def _expert_state(state: State, rows: Rows) -> State:
    """An expert's own state: the rows that it has learnt, the tools and the round of the whole."""
    theta = state.theta if isinstance(rows.theta, tuple) else rows.theta
    return State(theta=theta, available=state.available, t=state.t, extra=rows.extra)


def _stays(form: LearnerGrid) -> bool:
    """Whether no expert of a form ever moves from the documents as they are."""
    rules = [form.learner(g).rule for g in range(len(form.settings))]
    return all(
        rule is not None
        and rule.rows_alone
        and rule.projection.name == "none"
        and rule.estimator.name == "none"
        for rule in rules
    )


def _require_expert(learner: Learner) -> None:
    if learner.oracle:
        raise ValueError(f"expert {learner.name!r} is an oracle: a mixture learns from bits")
    if learner.logits is None:
        raise ValueError(
            f"expert {learner.name!r} has no softmax: it says nothing of how probable a bit is"
        )


def _add(
    sums: Float[Array, "*n"], lost: Float[Array, "*n"], more: Float[Array, "*n"]
) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """A sum of many numbers that keeps what rounding takes from it (Kahan 1965)."""
    more = more - lost
    new = sums + more
    return new, (new - sums) - more
