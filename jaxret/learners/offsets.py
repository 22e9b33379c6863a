"""Wrappers that add prior scores and usage to the logits.

    with_lexical(greedy(), weight=0.35)          adds the match of words to the logits
    with_balance(greedy(), strength=1.0)         divides by how often an item is retrieved

`jaxret.rules.offsets` has the formulas. Both keep the form of the learner: it stays rank one, with
its estimator, policy, query map and experience replay, and keeps its blocked form. They are applied
before `jaxret.learners.guarded.guarded`, and to the experts of a mixture one by one.

Letters: K prior scores per query.
"""

from collections.abc import Callable
from typing import Any

from jaxret.learners.learner import Learner, require_learner
from jaxret.learners.replay import with_rule
from jaxret.rules.offsets import WIDTH, Offsets
from jaxret.runtime.validate import as_number, require


def with_lexical(learner: Learner, weight: float = 0.35, *, width: int = WIDTH) -> Learner:
    """Add the prior scores of the query to the logits.

    The scores are the match of words, unless the task was given others. The logits become
    ``((1 - weight) theta_i . u + weight x_i) / tau`` (`jaxret.rules.offsets`).

    Args:
      learner: rank-one learner, with or without experience replay. Experts of a mixture are wrapped
        one by one.
      weight: weight of the scores x against inner products, in [0, 1).
      width: K >= 1, largest number of prior scores per query; a task with more is refused.

    Raises:
      ValueError: if the learner is not rank one or has a weight, or a number is out of its range.
    """
    require_learner(learner)
    weight = as_number(weight)
    require("weight", weight, "in [0, 1)", lambda x: 0 <= x < 1)
    require("width", width, "a whole number >= 1", lambda n: isinstance(n, int) and n >= 1)

    def change(rule):
        if rule.reads_prior:
            raise ValueError(
                f"learner {learner.name!r} already has a lexical weight: call with_lexical once"
            )
        offsets = (rule.offsets or Offsets())._replace(weight=weight, width=width)
        return rule._replace(tau=rule.tau / (1 - weight), offsets=offsets)

    return with_rule(learner, f"{learner.name}+lexical", change)


def with_balance(learner: Learner, strength: float = 1.0) -> Learner:
    """Divide an item's probability by a power of its usage so far.

    Args:
      learner: rank-one learner, with or without experience replay. Experts of a mixture are wrapped
        one by one.
      strength: the power s, >= 0; 1 divides by the usage (`jaxret.rules.offsets`).

    Raises:
      ValueError: if the learner is not rank one or has a balance, or the strength is negative.
    """
    require_learner(learner)
    strength = as_number(strength)
    require("strength", strength, ">= 0", lambda x: x >= 0)

    def change(rule):
        if rule.is_balanced:
            raise ValueError(
                f"learner {learner.name!r} already has a balance: call with_balance once"
            )
        return rule._replace(offsets=(rule.offsets or Offsets())._replace(strength=strength))

    return with_rule(learner, f"{learner.name}+balance", change)


def informed(
    of: Callable[..., Learner],
    *,
    lexical: float | None = None,
    balance: float | None = None,
    width: int = WIDTH,
    **settings: Any,
) -> Learner:
    """Make the learner of a preset with prior scores, usage or both; it keeps the preset's name.

    For grids: ``grid(informed, of=jr.centred, lexical=[0.2, 0.35])``.

    Args:
      of: preset of a rank-one learner, with or without experience replay.
      lexical: weight of the prior scores, in [0, 1); None: they are not read.
      balance: strength of the division by usage, >= 0; None: usage is not counted.
      width: largest number of prior scores per query, >= 1.
      **settings: settings of the preset.

    Raises:
      ValueError: if the preset is not rank one or has these offsets, or a number is out of its
        range.
    """
    learner = of(**settings)
    changed = learner if lexical is None else with_lexical(learner, lexical, width=width)
    changed = changed if balance is None else with_balance(changed, balance)
    return changed._replace(name=learner.name)
