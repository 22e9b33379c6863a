"""Many processes that run one program: a process a GPU, or a host, and each does the same.

    distributed.start(coordinator="host0:9911", count=4, index=0)      by hand
    distributed.start()                                                as SLURM or MPI say

`start` comes before anything computes. From then on `jax.devices()` are those of all processes, and
what is split over devices (rows of Theta, runs, batches) is split over all of them. Each process
runs the whole program on the same data, so three rules keep them together:

- Programs over all devices are run by all processes, in one order. What one of them may see and
  another not (a file, a signal, a clock) is agreed on before anyone acts on it: `agreed`, `anyone`.
- Process 0 alone writes (`leads`), all read: their folders are on one file system.
- An array of all devices is no NumPy array here: `fetch` brings it, called by all.

A process that dies takes all others with it within a minute, with an error; the same command, with
as many processes or not, goes on from the last checkpoint. With one process nothing here does
anything.

Pitfalls: a process a GPU, which ``local_device_ids`` names (SLURM: the process's own, by its number
on the host); one CPU device a process unless JAX_NUM_CPU_DEVICES says otherwise, and a core for
each; the same versions and the same kind of device everywhere, since all must compile one program.
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

HEARTBEAT = 30  # seconds of silence after which a process is dead
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
    """Joins the other processes; before anything computes. A second call changes nothing.

    What is not said is read from JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID and
    JAX_LOCAL_DEVICE_IDS, else asked of what started the processes (SLURM, Open MPI, Kubernetes,
    TPU). CPU devices exchange numbers through gloo.

    Args:
      coordinator: ``HOST:PORT`` of process 0, which all can reach; a free port there.
      count: processes in all.
      index: of this one, from 0.
      local_device_ids: which GPUs of this host are this process's.
      heartbeat: seconds of silence after which a process is dead, and all others end.

    Raises:
      ValueError: for a value out of its range, or one that neither says.
      RuntimeError: if something was computed before, or the others do not come.
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
            coordinator_bind_address=bind,  # not reachable from other hosts where all are on one
            heartbeat_timeout_seconds=heartbeat,
        )
    except ValueError as error:
        raise ValueError(
            f"nothing says who the processes are ({error}): give coordinator, count and index, or "
            "start them with srun or mpirun"
        ) from error
    sys.excepthook = _end_all


def start_as(setting: str | Mapping[str, Any] | None) -> None:
    """`start` as a config says it: null for one process, auto, or a block of its arguments.

    Raises:
      ValueError: for anything else, or as `start`.
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
    """Whether this process writes files: number 0 does."""
    return not several() or jax.process_index() == 0


def several() -> bool:
    """Whether there are other processes; the question alone begins nothing of JAX."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def agreed(value: T) -> T:
    """What process 0 holds: a number or an array, of the same shape and type in all."""
    if not several():
        return value
    mine = np.asarray(value)
    sent = multihost_utils.broadcast_one_to_all(np.frombuffer(mine.tobytes(), np.uint8))  # 64 bits
    found = np.frombuffer(sent.tobytes(), mine.dtype).reshape(mine.shape)
    plain: Any = found.item() if isinstance(value, bool | int | float) else found.copy()
    return plain


def anyone(flag: bool) -> bool:
    """Whether it holds in any process."""
    if not several():
        return flag
    return bool(multihost_utils.process_allgather(np.array([flag])).any())


def wait() -> None:
    """Returns when all processes have come here: what the first has written can be read."""
    anyone(False)


def fetch(tree: Any) -> Any:
    """Brings arrays that lie on the devices of several processes to each of them, as NumPy's.

    Keys come as keys; what lies here alone, and so everything in one process, stays as it is.
    """
    return jax.tree.map(_fetched, tree)


def put(x: Any, sharding: Sharding) -> jax.Array:
    """Places an array that each process holds as a whole: each takes its own part of it."""
    if not several() or not getattr(x, "is_fully_addressable", True):
        return jax.device_put(x, sharding)
    if _is_key(x):
        numbers = put(jax.random.key_data(x), sharding)
        return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(x))
    host = np.asarray(x)
    return jax.make_array_from_process_local_data(sharding, host, host.shape)


def everywhere(tree: Any) -> Any:
    """Copies each array that a process holds for itself to a device of each, as one array of all.

    Arrays of all devices, and NumPy's, stay as they are: the form in which a state is saved.
    """
    if not several():
        return tree
    firsts = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.array([firsts[i] for i in sorted(firsts)]), ("process",))
    copies = NamedSharding(mesh, P())
    return jax.tree.map(lambda x: put(x, copies) if _is_own(x) else x, tree)


def local(tree: Any, like: Any = None) -> Any:
    """Arrays of all devices as arrays of this process alone; all call it.

    Args:
      tree: of arrays.
      like: the same tree: only what is an array of this process there becomes one; None: all.
    """
    if not several():
        return tree

    def one(x, own=True):
        return jnp.asarray(_fetched(x)) if own and isinstance(x, jax.Array) else x

    return jax.tree.map(one, tree) if like is None else jax.tree.map(one, tree, _owned(like))


def end(status: int) -> None:
    """Ends this process at once where others would wait for it, and so all of them."""
    if several():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _end_all(kind, error, trace) -> None:
    """Says what went wrong, and does not wait for the others, who wait for this one."""
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


def _owned(tree: Any) -> Any:
    return jax.tree.map(_is_own, tree)


def _is_own(x: Any) -> bool:
    return isinstance(x, jax.Array) and x.is_fully_addressable


def _number(name: str) -> int | None:
    """A whole number from the environment."""
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
