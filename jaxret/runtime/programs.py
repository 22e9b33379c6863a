"""A cache of compiled programs on disk, so that a second process compiles nothing.

Importing jaxret turns on jax's persistent compilation cache, in ``$JAXRET_CACHE/programs``
(``~/.cache/jaxret/programs`` by default), unless another folder was configured. To turn it off:

    jax.config.update("jax_enable_compilation_cache", False)
"""

import os
import platform
from pathlib import Path

import jax


def keep_programs() -> None:
    """Turn the persistent compilation cache on, unless its folder was configured before."""
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    cache = Path(os.environ.get("JAXRET_CACHE") or Path.home() / ".cache" / "jaxret")
    # A folder may be shared by machines that cannot run each other's programs.
    folder = cache / "programs" / platform.node()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # small programs, too
