"""Keeps freed memory for the next step, on CPU.

XLA allocates a program's temporary arrays at every call and frees them at its end. glibc returns
blocks of that size to the system, which then has to provide and zero new pages at every step.
`tests/runtime/test_memory.py` counts them.
"""

import ctypes
import sys

# Of malloc.h. See mallopt(3).
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8


def retain_freed_memory() -> bool:
    """Make the allocator keep all memory that this process frees.

    Call this before the first JAX computation of a training on CPU, since it does not affect
    threads that XLA has already started. It changes the whole process, so only experiments call it,
    not the library. Only glibc (most Linux systems) has these settings.

    Returns:
      Whether the allocator accepted the settings.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_ARENA_MAX, 1))
    # a list, so that all three are tried
    accepted = [mallopt(name, value) == 1 for name, value in settings]
    return all(accepted)
