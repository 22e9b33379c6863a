"""What happens in life: parts of an `jaxret.environments.environment.Environment`, one idea a file.

    drift         other tools become right, or queries turn away slowly
    poison        an attacker gives false bits
    censoring     nobody answers, more or less often after a success
    clicks        several tools are shown, and users click what stands high
    delay         answers come after some rounds, out of order
    rewriting     documents are rewritten while their rows are learnt
    restart       the learner goes on from yesterday's snapshot

Tools that come and go are in `jaxret.environments.availability`. All go together:

    Environment(drift=drift.swapped(task.labels, at=900), delay=delay.geometric(mean=50))

The last three change what a learner lives through, not what is asked or answered: they are carried
around the learner (`jaxret.environments.deployment`), in the plain scan.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
