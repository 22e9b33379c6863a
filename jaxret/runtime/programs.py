"""A cache of compiled programs on disk, so that a second process compiles nothing.

jax's persistent compilation cache is on for whatever imports jaxret, in ``$JAXRET_CACHE/programs``
(``~/.cache/jaxret/programs`` by default), unless another folder was chosen before. To turn it off:

    jax.config.update("jax_enable_compilation_cache", False)
"""

import os
import platform
from pathlib import Path

import jax

SECONDS = 0.2  # programs that compile faster are not kept


def keep_programs() -> None:
    """Turns the persistent compilation cache on, unless a folder for it was chosen before."""
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    cache = Path(os.environ.get("JAXRET_CACHE") or Path.home() / ".cache" / "jaxret")
    # A program of one machine need not run on another that shares the folder.
    folder = cache / "programs" / platform.node()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", SECONDS)
