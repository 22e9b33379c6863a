"""Rounds in which nobody answers, more or less often after a success than after a failure.

    by_success(after_success=0.2, after_failure=0.6)      who fails walks away

No answer is not a failure, and a learner that counts answers alone is right in neither case: those
that come are no fair sample of what happened.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxret.runtime.validate import require
from jaxret.types import PRNGKey


class Censoring(NamedTuple):
    """The shares of rounds without an answer."""

    after_success: float | Float[Array, ""]
    after_failure: float | Float[Array, ""]


def by_success(*, after_success: float, after_failure: float) -> Censoring:
    """No answer in these shares of the rounds, each in [0, 1], by what truly happened."""
    for name, share in (("after_success", after_success), ("after_failure", after_failure)):
        require(name, share, "in [0, 1]", lambda x: 0 <= x <= 1)
    return Censoring(after_success, after_failure)


def answered(censoring: Censoring, key: PRNGKey, success: Bool[Array, ""]) -> Bool[Array, ""]:
    """Whether an answer comes. ``key`` is consumed.

    Returns:
      [].
    """
    share = jnp.where(success, censoring.after_success, censoring.after_failure)
    return jax.random.uniform(key) >= share
