"""What surrounds a learner: queries, tools that come and go, feedback, and interventions.

    environment    `Environment`: all effects together, and the response to a slate
    availability   tools arrive, leave, or are absent for a while
    drift          other tools become right, or queries turn slowly
    feedback       false bits of an attacker, rounds without an answer, clicks on a slate
    interventions  late answers, rewritten documents, a restart from a snapshot

Effects are combined in one `Environment`:

    Environment(
        drift=drift.swapped(task.labels, at=900),
        delay=interventions.geometric_delay(mean=50),
    )

Interventions change the learner itself, so they run in the plain scan only. How to write an effect
of one's own is described in `jaxret.environments.environment`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
