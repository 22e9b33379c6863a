"""Locks files and folders, so that only one process at a time writes them.

    release = own(path, writer, "log")      until release() is called or ``writer`` is collected

The lock is a file beside the locked one, which the operating system frees when its process ends,
however it ends. It stays there: removing it would let two processes lock two files of one name.
"""

import threading
import weakref
from pathlib import Path

_guard = threading.RLock()  # filelock counts its owners within a process, but not atomically


def own(path: Path, owner: object, kind: str) -> weakref.finalize:
    """Lock a file or folder against other processes for as long as an object lives.

    Objects of one process share the lock.

    Args:
      path: file or folder to own; its own folder must exist.
      owner: object that holds the lock until it is collected.
      kind: kind of the file, for the message.

    Returns:
      A function that ends this object's share in the lock at once.

    Raises:
      ValueError: if another process holds the lock.
    """
    from filelock import FileLock, Timeout

    place = path.resolve()
    place = place / ".lock" if place.is_dir() else place.with_name(f"{place.name}.lock")
    lock = FileLock(place, thread_local=False, is_singleton=True)
    with _guard:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(
                f"{path} is written by another process: a {kind} has one writer, so end that "
                "process or give another path"
            ) from None
    return weakref.finalize(owner, _release, lock)


def _release(lock) -> None:
    with _guard:
        lock.release()
