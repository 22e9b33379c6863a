"""Tool retrieval that keeps learning after deployment.

    import jaxret as jr

    task = jr.load_task("deskbank")
    train, test = task.split((0.8, 0.2), seed=0)
    run = jr.simulate(jr.greedy(), train, exposures=5, seeds=5)
    print(run.accuracy, jr.evaluate(run, test)["ndcg@10"])

The names are listed in ``__init__.pyi``, beside the files that they come from. Each is loaded when
it is first used, so that importing jaxret costs next to nothing.
"""

import lazy_loader

from jaxret.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ = [*__all__, "__version__"]
