"""Tool retrieval that keeps learning after deployment.

    import jaxret as jr

    task = jr.load_task("deskbank")
    train, test = task.split((0.8, 0.2), seed=0)
    run = jr.simulate(jr.greedy(), train, exposures=5, seeds=5)
    print(run.accuracy, jr.evaluate(run, test)["ndcg@10"])

The names are listed in ``__init__.pyi``, beside the files that they come from. Each is loaded when
it is first used, so that importing jaxret costs next to nothing.
"""

from importlib import metadata

import lazy_loader

try:
    __version__ = metadata.version("jaxret")
except metadata.PackageNotFoundError:  # files of a checkout that nobody installed
    __version__ = "0+unknown"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ = [*__all__, "__version__"]
