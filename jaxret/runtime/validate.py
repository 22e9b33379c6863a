"""Refusing bad input where it enters: the name, the value, the allowed range."""

import inspect
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any

import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Float, Int


def require(name: str, value, allowed: str, holds) -> None:
    """Raises ValueError unless ``holds(value)``.

    Traced values pass: a grid of settings is checked before it enters a program.

    Args:
      name: of the value, for the message.
      value: what is checked.
      allowed: the values that pass, in words, for the message.
      holds: takes the value and says whether it passes.

    Raises:
      ValueError: where it does not; names the value and what is allowed.
    """
    if isinstance(value, Tracer):
        return
    if not holds(value):
        raise ValueError(f"{name} must be {allowed}, got {value}")


def from_registry(
    owner: str, kind: str, registry: Mapping[str, Callable], spec: str | Mapping[str, Any]
) -> Any:
    """Makes what a name stands for.

    Args:
      owner: whose setting it is, for the message.
      kind: what the registry holds, for the message.
      registry: name -> factory.
      spec: a name, or a mapping of ``name`` and the factory's arguments.

    Raises:
      ValueError: for an unknown name, and for arguments that the factory does not take.
    """
    arguments = dict(spec) if isinstance(spec, Mapping) else {"name": spec}
    name = arguments.pop("name", None)
    if name not in registry:
        raise ValueError(f"{owner}: unknown {kind} {name!r}; known: {', '.join(registry)}")
    try:
        inspect.signature(registry[name]).bind(**arguments)
    except TypeError as error:
        raise ValueError(f"{owner}: {kind} {name!r}: {error}") from error
    return registry[name](**arguments)


def require_task(theta: ArrayLike, queries: ArrayLike, labels: ArrayLike) -> None:
    """Raises ValueError unless embeddings and labels belong together; on the host, once a run.

    Args:
      theta: item embeddings, [I, d], finite.
      queries: query embeddings, [N, d], finite.
      labels: [N, L], positions below I, -1 pads.
    """
    shapes = [np.shape(x) for x in (theta, queries, labels)]
    if [len(shape) for shape in shapes] != [2, 2, 2]:
        raise ValueError(f"theta, queries and labels must be [I, d], [N, d], [N, L], got {shapes}")
    (items, width), (n, query_width), (n_labels, _) = shapes
    if width != query_width:
        raise ValueError(
            f"items have {width} numbers and queries {query_width}: encode both with one encoder"
        )
    if n != n_labels:
        raise ValueError(f"there are {n} queries and labels for {n_labels}")
    for name, rows in {"theta": theta, "queries": queries}.items():
        bad = ~np.isfinite(np.asarray(rows)).all(axis=1)
        if bad.any():
            raise ValueError(f"row {bad.argmax()} of {name} is not finite ({bad.sum()} such rows)")
    out = (np.asarray(labels) < -1) | (np.asarray(labels) >= items)
    if out.any():
        row = int(out.any(axis=1).argmax())
        theirs = np.asarray(labels)[row].tolist()
        raise ValueError(f"query {row} has the labels {theirs}: outside -1 .. {items - 1}")


def require_labels(labels: Int[np.ndarray, "N L"], num_items: int) -> None:
    """Raises ValueError for the first query whose labels have no meaning.

    Args:
      labels: [N, L], rows of the catalogue, -1 pads.
      num_items: I.

    Raises:
      ValueError: for a query that has no label, a label outside ``[-1, num_items)``, or the same
        label twice.
    """
    labels = np.asarray(labels)
    ordered = np.sort(labels, axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    outside = (labels < -1) | (labels >= num_items)
    problems = {
        "has no label; drop it or give it one": (labels < 0).all(axis=1),
        f"has a label outside [-1, {num_items})": outside.any(axis=1),
        "names a label twice": repeated.any(axis=1),
    }
    for problem, where in problems.items():
        if where.any():
            first = int(where.argmax())
            raise ValueError(
                f"query {first} {problem}: {labels[first].tolist()} ({where.sum()} such queries)"
            )


def matrix_of(name: str, rows: ArrayLike) -> Float[np.ndarray, "n d"]:
    """Reads rows of numbers; raises ValueError where there are none, or not equally long ones.

    Returns:
      [n, d], float32; a read-only copy, aligned so that JAX uses it on CPU without another copy.
    """
    try:
        found = np.asarray(rows)
        if np.iscomplexobj(found):
            raise TypeError("complex ones, whose imaginary part would be lost")
        matrix = _aligned(found.shape)
        matrix[...] = found
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a matrix of numbers: {error}") from error
    matrix.setflags(write=False)
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(f"{name} must be a matrix with rows, got the shape {list(matrix.shape)}")
    return matrix


def _aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Room for float32 numbers from a multiple of 64 bytes on, as XLA wants arrays to lie."""
    size = 4 * int(np.prod(shape))
    room = np.empty(size + 64, np.uint8)
    first = -room.ctypes.data % 64
    return room[first : first + size].view(np.float32).reshape(shape)


def label_rows(
    labels: ArrayLike | Sequence[int] | Sequence[Sequence[int]],
) -> Int[np.ndarray, "N L"]:
    """Reads labels: one a query, several, or lists of different lengths.

    Args:
      labels: whole numbers: [N], [N, L], or N lists of them.

    Returns:
      [N, L], -1 pads.

    Raises:
      ValueError: where the labels are no whole numbers.
    """
    try:
        array = np.asarray(labels)
    except ValueError:  # lists of different lengths
        rows = [np.atleast_1d(row) for row in labels]  # ty: ignore[not-iterable]
        longest = max(map(len, rows))
        array = np.array([np.pad(row, (0, longest - len(row)), constant_values=-1) for row in rows])
        if all(np.issubdtype(row.dtype, np.integer) for row in rows if row.size):
            array = array.astype(np.int64)  # an empty list has no type of its own
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"labels must be rows of theta, whole numbers, got {array.dtype}")
    return array[:, None] if array.ndim == 1 else array


def require_length(name: str, values: Sized, length: int) -> None:
    """Raises ValueError unless there are ``length`` values.

    Args:
      name: of the values, for the message.
      values: what is counted.
      length: how many there must be.

    Raises:
      ValueError: where there are more or fewer; names both numbers.
    """
    require(f"the length of {name}", len(values), str(length), lambda n: n == length)


def require_different(name: str, values: Sequence[str]) -> None:
    """Raises ValueError, naming both places, where a value stands twice."""
    first: dict[str, int] = {}
    for place, value in enumerate(values):
        if first.setdefault(value, place) != place:
            raise ValueError(f"{name} must differ: {value!r} stands at {first[value]} and {place}")
