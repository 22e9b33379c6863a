"""Oracles: learners that are given the right item of each round, not the reward of the item shown.

    with_labels(centred_replayed())        the same map and replay, given labels
    oracle()                               the best of this form

Compare a rule with an oracle of its own form. The oracle ``full_information`` of
`jaxret.learners.presets` has neither query map nor replay, and a bandit rule with both may beat it.
"""

from jaxret.learners import presets
from jaxret.learners.learner import Learner
from jaxret.learners.offsets import informed
from jaxret.learners.registry import preset
from jaxret.learners.replay import with_rule
from jaxret.rules import estimators


def with_labels(learner: Learner) -> Learner:
    """Learn by the exact gradient of the labels, with the other parts of the learner unchanged.

    Args:
      learner: rank-one learner, with or without experience replay, which then replays labels.

    Raises:
      ValueError: if the learner is not rank one.
    """
    exact = estimators.full_information()
    name = f"{learner.name}+labels"
    return with_rule(learner, name, lambda rule: rule._replace(estimator=exact))


@preset
def oracle(
    *,
    tau: float = 0.03,
    eta: float = 1e-3,
    lexical: float | None = 0.25,
    balance: float | None = 1.0,
    per_round: int = 8,
    map_every: int = 16,
) -> Learner:
    """Show the best item and learn from the label, with a map, replay, words and usage.

    This is `centred_replayed` with the offsets of words and usage, given labels.

    Args:
      tau: temperature, > 0.
      eta: step size of the rows, >= 0.
      lexical: weight of the match of words, in [0, 1); None: words are not read.
      balance: strength of the division by usage, >= 0; None: usage is not counted.
      per_round: past rounds replayed after each round, >= 1.
      map_every: rounds between two updates of the map; multiples of 8 have a blocked form.
    """
    rule = informed(
        of=presets.centred_replayed,
        lexical=lexical,
        balance=balance,
        tau=tau,
        eta=eta,
        per_round=per_round,
        map_every=map_every,
    )
    return with_labels(rule)._replace(name="oracle")
