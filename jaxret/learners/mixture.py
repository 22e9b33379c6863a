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

Where all experts have a blocked form it has one, too: ``mixture(default_experts(map_every=32))``
(`jaxret.simulation.blocked.mixture`).

Sources: mixtures under log loss, Vovk (1990); the fixed share, Herbster and Warmuth (1998); two
numbers that calibrate, Platt (1999), learnt here by online Newton steps. What can be proved of it
is in `jaxret.theory.mixture`.

Letters: I items, d width, N queries, G experts, n numbers of one of them, k items shown.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxret.learners import calibration, mixing, presets
from jaxret.learners.grid import LearnerGrid, grid
from jaxret.learners.learner import Blend, Learner, Mixing, where_observed
from jaxret.learners.mixing import Mixed, Rows, expert_state, stays
from jaxret.learners.registry import preset
from jaxret.rules import policies
from jaxret.rules.policies import Policy
from jaxret.runtime.validate import require
from jaxret.types import State


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
    log_prior = tuple(np.log(shares / shares.sum()).tolist())
    policy = policy or policies.greedy()
    shown_of = policy.chances
    blend = Blend(tuple(forms), policy, log_prior, alpha, beta, floor)

    def init(theta, available=None):
        here = jnp.ones(len(theta), bool) if available is None else available

        def begun(form):
            if stays(form):
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
            return function(form.make(*numbers), expert_state(state, row))

        return jax.vmap(one)(jnp.asarray(form.settings, state.theta.dtype), rows)

    def of_all(state, function):
        """A function of every expert, [G, ..]."""
        pairs = zip(forms, state.extra.rows, strict=True)
        return jnp.concatenate([each(state, form, rows, function) for form, rows in pairs])

    def words(state, query):
        z = of_all(state, lambda learner, own: learner.logits(own, query))
        return mixing.words(z, None)

    def logits(state, query):
        return mixing.mixed(state.extra, words(state, query), state.available)

    def scores(state, queries):
        def add(form, total, line):  # expert by expert: all at once would hold [G, N, I]
            weight, uv, numbers, row = line
            learner, own = form.make(*numbers), expert_state(state, row)
            z = jax.vmap(partial(learner.logits, own))(queries)
            return total + weight * calibration.believed(
                uv, calibration.logit(jax.nn.softmax(z, axis=-1))
            ), None

        ends = np.cumsum([len(form.settings) for form in forms])[:-1]
        weights = jnp.split(jnp.exp(state.extra.log_weights), ends)
        lines = jnp.split(state.extra.calibration.line, ends)
        total = jnp.zeros((len(queries), len(state.theta)), queries.dtype)
        with jax.default_matmul_precision("highest"):  # else accelerators round scores into ties
            for form, *some, rows in zip(forms, weights, lines, state.extra.rows, strict=True):
                numbers = jnp.asarray(form.settings, state.theta.dtype)
                total, _ = lax.scan(partial(add, form), total, (*some, numbers, rows))
        return mixing.log(total, state.available)

    def act(state, query, key):
        return policy.show(key, logits(state, query), None)

    def chances(state, query):
        assert shown_of is not None
        return shown_of(logits(state, query))

    def update(state, query, choice, feedback):
        said = words(state, query)[:, choice.item]  # [G] or [G, k]
        extra = mixing.weighed(blend, state.extra, said, feedback.reward)
        seen = feedback._replace(observed=True)

        def learnt(form, rows):
            if stays(form):
                return rows

            def step(learner, own):
                new = learner.update(own, query, choice, seen)
                return Rows(theta=new.theta, extra=new.extra)

            return each(state, form, rows, step)

        pairs = zip(forms, extra.rows, strict=True)
        extra = extra._replace(rows=tuple(learnt(form, rows) for form, rows in pairs))
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
        return learners[g], expert_state(state, rows)

    places = [(f, g) for f, form in enumerate(forms) for g in range(len(form.settings))]
    itself = Mixing(
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
        mixing=itself,
        blend=blend,
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


def default_experts(*, map_every: int = 1) -> list[LearnerGrid]:
    """The experts of `mixture`, for every data set and encoder.

    Args:
      map_every: rounds between two moves of their query maps; of a multiple of 8, the mixture has
        a blocked form (`jaxret.simulation.blocked.simulate`).
    """
    replayed = {"tau": [0.02], "eta": [6e-4], "map_every": map_every}
    return [
        grid(presets.frozen, tau=[0.02]),
        grid(presets.centred, tau=[0.04], eta=[4e-3], map_every=map_every),
        grid(presets.mapped_replayed, **replayed),
        grid(presets.centred_replayed, **replayed),
    ]


def _require_expert(learner: Learner) -> None:
    if learner.oracle:
        raise ValueError(f"expert {learner.name!r} is an oracle: a mixture learns from bits")
    if learner.logits is None:
        raise ValueError(
            f"expert {learner.name!r} has no softmax: it says nothing of how probable a bit is"
        )
    rule = learner.rule if learner.replay is None else learner.replay.rule
    if rule is not None and rule.rounding is not None:
        raise ValueError(f"expert {learner.name!r} has bfloat16 rows: a mixture's are float32")
