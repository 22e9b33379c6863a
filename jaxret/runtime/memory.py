"""Memory that one step frees and the next one takes, on CPU.

XLA asks for a program's temporary arrays at every call, and frees them at its end. glibc returns
blocks of that size to the system at once, which has to hand out, and zero, fresh pages at every
step. `tests/test_memory.py` counts them.
"""

import ctypes
import sys

# Of malloc.h. See mallopt(3).
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8


def retain_freed_memory() -> bool:
    """Keeps what this process frees, for good: its size stays at the largest so far.

    For a training on CPU, and before the first JAX computation: threads that XLA has started keep
    to what they have. It changes how the whole process gets its memory, so nothing in the library
    calls it unasked (the experiments do). Only glibc (most Linux systems) takes such settings.

    Returns:
      whether the allocator took them.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_ARENA_MAX, 1))
    # a list: all three are tried, whatever one says
    accepted = [mallopt(name, value) == 1 for name, value in settings]
    return all(accepted)
