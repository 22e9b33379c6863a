"""Environments: queries, changing catalogues, feedback, and interventions on the learner.

    environment    `Environment`: all effects together, and the response to a slate
    availability   tools arrive, leave, or are absent for a while
    drift          other tools become right, or queries rotate slowly
    feedback       false rewards of an attacker, rounds without feedback, clicks on a slate
    interventions  delayed feedback, rewritten documents, a restart from a snapshot

Effects are combined in one `Environment`:

    Environment(
        drift=drift.swapped(task.labels, at=900),
        delay=interventions.geometric_delay(mean=50),
    )

Interventions change the learner itself, so they run in the plain scan only.
`jaxret.environments.environment` explains how to write a new effect.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
