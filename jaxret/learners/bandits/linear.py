"""One Bayesian linear regression for all tools: LinUCB, Thompson sampling, neural-linear.

    x(q, a) = [sqrt(d) q * theta_a,  q theta_a,  base(q)]       base: 1, or q itself
    y       = w x(q, a) + noise of variance s2,     w ~ N(mean, s2 R R^T),  s2 ~ IG(shape, rate)

theta_a is the document of the tool and is constant; every round updates w, and thereby the
predictions of all tools. The factor sqrt(d) gives the products of unit vectors about the scale of
the cosine. With the weights (u, c, b) of the three parts the mean is
``theta_a ((sqrt(d) u + c) * q) + b base(q)``, the product of rows with a query mapped by a diagonal
matrix, so the learner can be saved as embeddings. With start 'document' the prior mean of w is 1
for the cosine and 0 for the rest; with 'zero' it is 0, and the documents serve as features only.
With 'hybrid' it is that of 'document', and the known offset o_a is a further feature, whose weight
is fixed at 1: the regression is one of y - o_a on x(q, a).

    R R^T = A^-1 = (ridge I + sum_s x_s x_s^T)^-1
    R    <- R - R u u^T / (v + sqrt(v))             u = R^T x,  v = 1 + |u|^2

The update of R is Potter's square root (1963) of the Sherman-Morrison formula. It costs m^2
products per round, R R^T stays positive semidefinite, and a draw of w is a product with R, so no
matrix is ever decomposed. Mean, covariance and noise are conjugate; only `neural_linear` uses the
noise. The regression predicts the reward of each tool separately, so queries with several right
tools need no special case.

Letters: I items, d width, m = d + 1 + |base| features, n points, N queries.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxret.learners.bandits import common
from jaxret.learners.bandits.common import Start
from jaxret.learners.learner import Acting, CustomStructure, Learner
from jaxret.learners.registry import preset
from jaxret.rules import policies
from jaxret.runtime.validate import require
from jaxret.types import PRNGKey, Slate

Base: TypeAlias = Callable[[Float[Array, "*n d"]], Float[Array, "*n b"]]


class Posterior(NamedTuple):
    """The distribution of the weights and of the variance of the noise."""

    mean: Float[Array, " m"]
    root: Float[Array, "m m"]  # R
    shape: Float[Array, ""]
    rate: Float[Array, ""]


@preset
def linucb_shared(*, alpha: float = 0.1, ridge: float = 1.0, start: Start = "document") -> Learner:
    """Learn by LinUCB, with one model of query and tool for all tools.

    Chu et al. (2011), Algorithm 1, whose ridge is 1 and which leaves the features open:

        show  argmax_a  w x(q, a) + alpha sqrt(x^T A^-1 x),     x = [sqrt(d) q * theta_a, cosine, 1]

    alpha is constant here. With alpha growing like sqrt(m log t) (OFUL, Abbasi-Yadkori et al. 2011)
    and ``E[y] = w x`` the regret is Õ(m sqrt(T)), for any number of tools.

    Cost per round: m^2 products for the bonus of each tool, which is tens of milliseconds with some
    thousands of tools. 43,215 tools of width 1,536 take 10^11 products, which is too slow; `lints`,
    which has no bonus, remains feasible.

    Args:
      alpha: factor of the standard deviation in the bonus, >= 0.
      ridge: precision of the prior, > 0, in rounds with features of length 1.
      start: 'document', the prior mean is the cosine; 'zero'; or 'hybrid', the cosine with words
        and usage.

    Returns:
      The learner; `State.extra` is a `Posterior`.

    Raises:
      ValueError: if a setting is out of range.
    """
    require("alpha", alpha, ">= 0", lambda x: x >= 0)

    def upper(state, query):
        x = features(state.theta, query.vector, constant)
        bonus = alpha * deviations(state.extra, x)
        return x @ state.extra.mean + query.offset + bonus

    acting = common.acting_by(policies.greedy(), upper)
    return linear_learner("linucb_shared", base=constant, start=start, ridge=ridge, acting=acting)


@preset
def lints(*, alpha: float = 0.03, ridge: float = 1.0, start: Start = "document") -> Learner:
    """Learn by Thompson sampling, with one linear model of query and tool for all tools.

    Agrawal and Goyal (2013), Algorithm 1, whose ridge is 1:

        draw  w ~ N(mean, alpha^2 A^-1)
        show  argmax_a  w x(q, a),      x = [sqrt(d) q * theta_a, cosine, 1]

    The paper's alpha (there v) is R sqrt(9 m log(t / delta)), with which the regret is Õ(m^(3/2)
    sqrt(T)) if ``E[y] = w x``; a constant as small as the default has no such guarantee. The
    probability of a tool has no closed form, so the propensity is NaN and logs of this learner
    cannot be used for off-policy evaluation.

    Cost per round: I d + m^2 products, and as many numbers in memory; 43,215 tools of width 1,536
    are feasible.

    Args:
      alpha: standard deviation of the draws in units of A^-1/2, >= 0.
      ridge: precision of the prior, > 0, in rounds with features of length 1.
      start: 'document', the prior mean is the cosine; 'zero'; or 'hybrid', the cosine with words
        and usage.

    Returns:
      The learner; `State.extra` is a `Posterior`.

    Raises:
      ValueError: if a setting is out of range.
    """
    require("alpha", alpha, ">= 0", lambda x: x >= 0)
    acting = _thompson(constant, lambda posterior, key: draw(posterior, key, alpha))
    return linear_learner("lints", base=constant, start=start, ridge=ridge, acting=acting)


@preset
def neural_linear(
    *, ridge: float = 10.0, shape: float = 6.0, rate: float = 1.25, start: Start = "document"
) -> Learner:
    """Learn a Bayesian regression on the encoder's vectors, with Thompson draws (neural-linear).

    Snoek et al. (2015); as a bandit Riquelme, Tucker and Snoek (2018):

        draw  s2 ~ inverse gamma(shape, rate),  w ~ N(mean, s2 A^-1)
        show  argmax_a  w x(q, a),      x = [sqrt(d) q * theta_a, cosine, q]

    The variance of the draws is learnt, since mean, covariance and noise are conjugate. Departures
    from the paper: the network is the encoder, which is not trained further; one regression is
    shared by all tools, since most tools are shown too rarely to have their own; the noise
    begins with mean 1/4, the largest variance of a bit, where the paper's begins at shape = rate =
    6. There is no guarantee. The probability of a tool has no closed form: the propensity is NaN.

    Cost per round: I d + (2 d)^2 products, and as many numbers in memory; 43,215 tools of width
    1,536 are feasible.

    Args:
      ridge: precision of the prior in units of 1 / s2, > 0, in rounds with features of length 1.
      shape: shape of the noise's distribution before the first round, > 1.
      rate: rate of the noise's distribution before the first round, > 0, in squared rewards; the
        mean of s2 is rate / (shape - 1).
      start: 'document', the prior mean is the cosine; 'zero'; or 'hybrid', the cosine with words
        and usage.

    Returns:
      The learner; `State.extra` is a `Posterior`.

    Raises:
      ValueError: if a setting is out of range.
    """
    require("shape", shape, "> 1", lambda x: x > 1)
    require("rate", rate, "> 0", lambda x: x > 0)

    def weights(posterior, key):
        noise, key = jax.random.split(key)
        return draw(posterior, key, draw_noise(posterior, noise))

    return linear_learner(
        "neural_linear",
        base=identity,
        start=start,
        ridge=ridge,
        acting=_thompson(identity, weights),
        shape=shape,
        rate=rate,
    )


def linear_learner(
    name: str,
    *,
    base: Base,
    start: Start,
    ridge: float,
    acting: Acting,
    shape: float = 1.0,
    rate: float = 1.0,
) -> Learner:
    """Build a learner that predicts rewards by one linear regression for all tools.

    Args:
      name: name of the learner.
      base: the features that do not depend on the tool.
      start: the prior mean of the weights: 'document', the cosine; 'zero'; or 'hybrid', the cosine
        with words and usage.
      ridge: precision of the prior, > 0; may be traced.
      acting: choice of a tool.
      shape: shape of the noise's distribution before the first round, > 0; may be traced.
      rate: rate of the noise's distribution before the first round, > 0; may be traced.

    Returns:
      The learner; `State.extra` is the `Posterior` of w.

    Raises:
      ValueError: if ``ridge`` or ``start`` is out of range.
    """
    require("ridge", ridge, "> 0", lambda x: x > 0)
    common.require_start(start)

    def extra(theta):
        width = theta.shape[1]
        size = width + 1 + base(theta[:1]).shape[1]
        first = jnp.zeros(size, theta.dtype).at[width].set(0.0 if start == "zero" else 1.0)
        return prior(first, ridge, shape, rate)

    def learn(state, query, choice, feedback):
        x = features(state.theta[choice.item], query.vector, base)
        unexplained = feedback.reward - query.offset[choice.item]
        return state._replace(extra=observe(state.extra, x, unexplained))

    def predict(state, queries):
        found = means(state.extra.mean, state.theta, queries.vector, base)
        return found + queries.offset

    def values(state, query):
        return state.theta @ map_queries(state.extra.mean, query.vector) + query.offset

    return common.bandit(
        name,
        start="document" if start == "zero" else start,  # rows are features, which are never zero
        acting=acting,
        learn=learn,
        predict=predict,
        extra=extra,
        values=values,
        structure=CustomStructure(
            map_queries=lambda state, queries: map_queries(state.extra.mean, queries)
        ),
    )


def constant(queries: Float[Array, "*n d"]) -> Float[Array, "*n 1"]:
    """Return the base 1, a constant offset.

    Returns:
      Ones [.., 1].
    """
    return jnp.ones((*queries.shape[:-1], 1), queries.dtype)


def identity(queries: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
    """Return the base q, an offset per query for all tools.

    Returns:
      The queries [.., d].
    """
    return queries


def features(
    theta: Float[Array, "*n d"], query: Float[Array, " d"], base: Base
) -> Float[Array, "*n m"]:
    """Compute x(q, a) of one tool or of many.

    Args:
      theta: documents [.., d].
      query: q [d].
      base: the features that do not depend on the tool.

    Returns:
      [.., m].
    """
    products = len(query) ** 0.5 * theta * jnp.broadcast_to(query, theta.shape)
    cosine = (theta @ query)[..., None]
    offset = base(query)
    offset = jnp.broadcast_to(offset, (*cosine.shape[:-1], offset.shape[-1]))
    return jnp.concatenate([products, cosine, offset], axis=-1)


def map_queries(weights: Float[Array, " m"], queries: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
    """Compute the mapped queries ``(sqrt(d) u + c) * q``, whose products with documents rank tools.

    Args:
      weights: w [m], that is (u [d], c [], b).
      queries: [.., d].

    Returns:
      [.., d].
    """
    width = queries.shape[-1]
    factors = width**0.5 * weights[:width] + weights[width]
    return jnp.broadcast_to(factors, queries.shape) * queries


def means(
    weights: Float[Array, " m"],
    theta: Float[Array, "I d"],
    queries: Float[Array, "N d"],
    base: Base,
) -> Float[Array, "N I"]:
    """Compute ``w x(q, a)`` of every query and tool, without forming the features.

    Args:
      weights: w [m].
      theta: documents [I, d].
      queries: [N, d].
      base: the features that do not depend on the tool.

    Returns:
      [N, I].
    """
    offset = base(queries) @ weights[queries.shape[-1] + 1 :]
    return common.products(map_queries(weights, queries), theta) + offset[:, None]


def prior(
    mean: Float[Array, " m"], ridge: float, shape: float = 1.0, rate: float = 1.0
) -> Posterior:
    """Return the distribution before the first observation.

    Args:
      mean: mean of the weights [m].
      ridge: precision of the weights in units of 1 / s2, > 0.
      shape: shape of the noise's distribution, > 0.
      rate: rate of the noise's distribution, > 0.
    """
    return Posterior(
        mean=mean,
        root=jnp.eye(len(mean), dtype=mean.dtype) / jnp.sqrt(ridge).astype(mean.dtype),
        shape=jnp.asarray(shape, mean.dtype),
        rate=jnp.asarray(rate, mean.dtype),
    )


def observe(posterior: Posterior, x: Float[Array, " m"], y: Float[Array, ""]) -> Posterior:
    """Condition on one more observation.

    Args:
      posterior: the distribution so far.
      x: features [m].
      y: reward [].
    """
    u = posterior.root.T @ x
    along = posterior.root @ u  # covariance times x
    v = 1.0 + u @ u
    error = y - posterior.mean @ x
    return Posterior(
        mean=posterior.mean + along * (error / v),
        root=posterior.root - along[:, None] * (u / (v + jnp.sqrt(v)))[None, :],
        shape=posterior.shape + 0.5,
        rate=posterior.rate + 0.5 * error**2 / v,
    )


def deviations(posterior: Posterior, x: Float[Array, "n m"]) -> Float[Array, " n"]:
    """Compute ``sqrt(x^T R R^T x)`` of every point, with n m^2 products.

    Returns:
      [n].
    """
    return jnp.linalg.norm(x @ posterior.root, axis=1)


def draw(posterior: Posterior, key: PRNGKey, scale: Float[Array, ""] | float) -> Float[Array, " m"]:
    """Draw weights from ``N(mean, scale^2 R R^T)``.

    Args:
      posterior: the distribution.
      key: consumed.
      scale: standard deviation of the noise, >= 0.

    Returns:
      [m].
    """
    noise = jax.random.normal(key, posterior.mean.shape, posterior.mean.dtype)
    return posterior.mean + scale * (posterior.root @ noise)


def draw_noise(posterior: Posterior, key: PRNGKey) -> Float[Array, ""]:
    """Draw a standard deviation of the noise, s.

    Returns:
      [].
    """
    gamma = jax.random.gamma(key, posterior.shape, dtype=posterior.mean.dtype)
    return jnp.sqrt(posterior.rate / gamma)


def _thompson(base: Base, weights: Callable[[Posterior, PRNGKey], Float[Array, " m"]]) -> Acting:
    """Show the best tool by sampled weights; the probability of each tool is unknown."""

    def act(state, query, key):
        sample = weights(state.extra, key)
        values = means(sample, state.theta, query.vector[None], base)[0] + query.offset
        item = jnp.argmax(common.where_available(state, values)).astype(jnp.int32)
        return Slate(items=item[None], propensity=jnp.full(1, jnp.nan, values.dtype))

    return Acting(act, None)
