"""Runs one program in many processes, one per GPU or host.

    distributed.start(coordinator="host0:9911", count=4, index=0)      explicit
    distributed.start()                                                from SLURM or MPI

Call `start` before any computation. From then on `jax.devices()` has the devices of all processes,
over which rows of Theta, runs and batches are split. Each process runs the whole program on the
same data, under three rules:

- All processes run programs over all devices, in the same order. Facts that may differ between
  processes (a file, a signal, a clock) must be agreed on before use: `agreed`, `anyone`.
- Only process 0 writes (`leads`), all read: their folders are on a shared file system.
- An array over all devices cannot be converted to NumPy; all processes call `fetch` instead.

If a process dies, all others end with an error within a minute; the same command, with any number
of processes, resumes from the last checkpoint. With a single process all functions are trivial.

Requirements: one GPU per process, given by ``local_device_ids`` (under SLURM by the local number of
the process); one CPU device and one core per process, unless JAX_NUM_CPU_DEVICES is set; the same
versions and device types everywhere, since all processes must compile the same program.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, Sharding
from jax.sharding import PartitionSpec as P

from jaxret.runtime.validate import require

HEARTBEAT = 30  # seconds of silence after which a process counts as dead
LOOPBACK = ("127.0.0.1:", "localhost:")
T = TypeVar("T")


def start(
    coordinator: str | None = None,
    count: int | None = None,
    index: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    *,
    heartbeat: int = HEARTBEAT,
) -> None:
    """Join the other processes, before any computation; a second call has no effect.

    Missing arguments are read from JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID and
    JAX_LOCAL_DEVICE_IDS, else from the launcher (SLURM, Open MPI, Kubernetes, TPU). CPU devices
    communicate through gloo.

    Args:
      coordinator: ``HOST:PORT`` of process 0, reachable from all, with a free port.
      count: number of processes.
      index: index of this process, from 0.
      local_device_ids: GPUs of this host that this process uses.
      heartbeat: seconds of silence after which a process counts as dead, and all others end.

    Raises:
      ValueError: if a value is out of its range, or cannot be determined.
      RuntimeError: if there was a computation before, or the other processes do not join.
    """
    if jax.distributed.is_initialized():
        return
    coordinator = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS")
    count = _number("JAX_NUM_PROCESSES") if count is None else count
    index = _number("JAX_PROCESS_ID") if index is None else index
    _check(coordinator, count, index, local_device_ids, heartbeat)
    bind = coordinator if (coordinator or "").startswith(LOOPBACK) else None
    try:
        jax.distributed.initialize(
            coordinator,
            count,
            index,
            local_device_ids,
            coordinator_bind_address=bind,  # a single host needs no outside access
            heartbeat_timeout_seconds=heartbeat,
        )
    except ValueError as error:
        raise ValueError(
            f"the processes are not configured ({error}): give coordinator, count and index, or "
            "start them with srun or mpirun"
        ) from error
    sys.excepthook = _end_all


def start_as(setting: str | Mapping[str, Any] | None) -> None:
    """Call `start` from a config: null for one process, auto, or a mapping of arguments.

    Raises:
      ValueError: if the setting is anything else, or an argument is refused.
    """
    if setting is None:
        return
    known = ("coordinator", "count", "index", "local_device_ids", "heartbeat")
    given: Any = {} if setting == "auto" else setting
    allowed = f"null, auto or a block with some of {', '.join(known)}"
    fits = isinstance(given, Mapping) and {*given} <= {*known}
    require("distributed", setting, allowed, lambda _: fits)
    start(**dict(given))


def leads() -> bool:
    """Return whether this process, number 0, writes files."""
    return not several() or jax.process_index() == 0


def several() -> bool:
    """Return whether there are other processes, without initialising JAX."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def agreed(value: T) -> T:
    """Return the value of process 0, a number or an array of the same shape and type in all."""
    if not several():
        return value
    mine = np.asarray(value)
    sent = multihost_utils.broadcast_one_to_all(np.frombuffer(mine.tobytes(), np.uint8))  # 64 bits
    found = np.frombuffer(sent.tobytes(), mine.dtype).reshape(mine.shape)
    plain: Any = found.item() if isinstance(value, bool | int | float) else found.copy()
    return plain


def anyone(flag: bool) -> bool:
    """Return whether the flag is true in any process."""
    if not several():
        return flag
    return bool(multihost_utils.process_allgather(np.array([flag])).any())


def wait() -> None:
    """Wait until all processes arrive, after which files of process 0 can be read."""
    anyone(False)


def fetch(tree: Any) -> Any:
    """Copy arrays over the devices of several processes to each process, as NumPy arrays.

    Keys remain keys; process-local arrays are unchanged.
    """
    return jax.tree.map(_fetched, tree)


def put(x: Any, sharding: Sharding) -> jax.Array:
    """Shard an array that every process holds in full."""
    if not several() or not getattr(x, "is_fully_addressable", True):
        return jax.device_put(x, sharding)
    if _is_key(x):
        numbers = put(jax.random.key_data(x), sharding)
        return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(x))
    host = np.asarray(x)
    return jax.make_array_from_process_local_data(sharding, host, host.shape)


def everywhere(tree: Any) -> Any:
    """Replicate each process-local JAX array over one device per process, for saving a state.

    Arrays over all devices and NumPy arrays are unchanged.
    """
    if not several():
        return tree
    firsts = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.array([firsts[i] for i in sorted(firsts)]), ("process",))
    copies = NamedSharding(mesh, P())
    return jax.tree.map(lambda x: put(x, copies) if _is_own(x) else x, tree)


def local(tree: Any, like: Any = None) -> Any:
    """Convert arrays over all devices to arrays of this process; all processes must call it.

    Args:
      tree: tree of arrays.
      like: tree of the same structure; only leaves that are process-local in it are converted.
        None: all leaves.
    """
    if not several():
        return tree

    def one(x, own=True):
        return jnp.asarray(_fetched(x)) if own and isinstance(x, jax.Array) else x

    if like is None:
        return jax.tree.map(one, tree)
    return jax.tree.map(one, tree, jax.tree.map(_is_own, like))


def end(status: int) -> None:
    """End this process at once if there are others, which would wait for it; they end, too."""
    if several():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _end_all(kind, error, trace) -> None:
    """Print the error and end this process, without waiting for the others."""
    sys.__excepthook__(kind, error, trace)
    end(1)


def _fetched(x: Any) -> Any:
    if not isinstance(x, jax.Array) or x.is_fully_addressable:
        return x
    if _is_key(x):
        numbers = jnp.asarray(_fetched(jax.random.key_data(x)))
        return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(x))
    return np.asarray(x if x.is_fully_replicated else multihost_utils.process_allgather(x, True))


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _is_own(x: Any) -> bool:
    return isinstance(x, jax.Array) and x.is_fully_addressable


def _number(name: str) -> int | None:
    """Read an integer from an environment variable."""
    text = os.environ.get(name)
    if text is None:
        return None
    require(name, text, "a whole number", lambda text: text.strip().isdigit())
    return int(text)


def _check(coordinator, count, index, local_device_ids, heartbeat) -> None:
    def whole(x):
        return isinstance(x, int) and not isinstance(x, bool)

    def ids(x):
        return x is None or all(whole(i) and i >= 0 for i in ([x] if whole(x) else x))

    below = "0 or more" if count is None else f"in 0 .. {count - 1}, count={count} less one"
    address = "HOST:PORT, such as 127.0.0.1:9911, with a port in 1 .. 65535"
    require("coordinator", coordinator, address, lambda x: x is None or _is_address(x))
    require("count", count, "a whole number >= 1", lambda n: n is None or (whole(n) and n >= 1))
    require(
        "index",
        index,
        f"a whole number {below}",
        lambda i: i is None or (whole(i) and i >= 0 and (count is None or i < count)),
    )
    require("local_device_ids", local_device_ids, "numbers of GPUs, 0 or more", ids)
    require("heartbeat", heartbeat, "a whole number of seconds >= 1", lambda n: whole(n) and n >= 1)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdigit() and 1 <= int(port) <= 65535
