"""Validation of inputs, with errors that give the name, the value and the allowed range."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Float, Int


def require(name: str, value, allowed: str, holds) -> None:
    """Raise ValueError unless ``holds(value)``.

    Traced values are not checked: a grid of settings is checked before it enters a program.

    Args:
      name: name of the value, for the message.
      value: value to check.
      allowed: description of the allowed values, for the message.
      holds: function from a value to whether it is allowed.

    Raises:
      ValueError: if the value is not allowed.
    """
    if isinstance(value, Tracer):
        return
    if not holds(value):
        raise ValueError(f"{name} must be {allowed}, got {value}")


def require_one_of(name: str, value: object, known: Collection[str]) -> None:
    """Raise ValueError unless ``value`` is in ``known``.

    Args:
      name: name of the setting; the message begins with it.
      value: what is checked.
      known: the values that pass.

    Raises:
      ValueError: where the value is none of them; lists them.
    """
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def as_number(value: Any) -> Any:
    """Convert a NumPy or JAX scalar to a Python number, which can be hashed and stored as JSON.

    Args:
      value: any setting; a traced number, a larger array or any other value is returned unchanged.
    """
    scalar = isinstance(value, np.generic | np.ndarray | jax.Array) and np.ndim(value) == 0
    return value.item() if scalar and not isinstance(value, Tracer) else value


def from_registry(
    owner: str, kind: str, registry: Mapping[str, Callable], spec: str | Mapping[str, Any]
) -> Any:
    """Make an object by the name of its factory.

    Args:
      owner: owner of the setting, for the message.
      kind: kind of the registry's objects, for the message.
      registry: name -> factory.
      spec: a name, or a mapping of ``name`` and arguments of the factory.

    Raises:
      ValueError: if the name is unknown, or the factory refuses an argument.
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
    """Raise ValueError unless embeddings and labels are consistent; on the host, once per run.

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
        found = np.asarray(labels)[row].tolist()
        raise ValueError(f"query {row} has the labels {found}: outside -1 .. {items - 1}")


def require_labels(
    labels: Int[np.ndarray, "N L"], num_items: int, *, none_right: bool = False
) -> None:
    """Raise ValueError for the first query with invalid labels.

    Args:
      labels: [N, L], -1 pads.
      num_items: number of items.
      none_right: whether queries may have no label, which means that no item is right.

    Raises:
      ValueError: if a query has no label, a label outside ``[-1, num_items)``, or a label twice.
    """
    labels = np.asarray(labels)
    ordered = np.sort(labels, axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    outside = (labels < -1) | (labels >= num_items)
    problems = {
        "has no label; drop it or give it one": (labels < 0).all(axis=1) & (not none_right),
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
    """Convert rows of numbers; raise ValueError unless there are rows of equal length.

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
    """Allocate a float32 array aligned to 64 bytes, as XLA requires for sharing."""
    size = 4 * int(np.prod(shape))
    room = np.empty(size + 64, np.uint8)
    first = -room.ctypes.data % 64
    return room[first : first + size].view(np.float32).reshape(shape)


def real_numbers(name: str, values: Any, axes: int) -> np.ndarray:
    """Convert lists, JAX arrays and arrays of integers or bits to an array of floats.

    Args:
      name: name of the values, for the message.
      values: numbers, nested ``axes`` levels deep; None counts as NaN.
      axes: required number of axes.

    Returns:
      an array of floats; float64 unless ``values`` has floats of its own.

    Raises:
      ValueError: if these are not real numbers, or have another number of axes.
    """
    try:
        found = np.asarray(values)
        if found.dtype.kind in "USMmc":
            raise TypeError(f"got the dtype {found.dtype}")
        if not np.issubdtype(found.dtype, np.floating):
            found = found.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be real numbers: {error}") from error
    return _of_axes(name, found, axes)


def finite_numbers(name: str, values: Any) -> Float[np.ndarray, " n"]:
    """Convert one or more numbers in a row to float64.

    Args:
      name: name of the values, for the message.
      values: finite numbers [n].

    Returns:
      the numbers [n], float64.

    Raises:
      ValueError: if there is none, or one is not finite.
    """
    found = real_numbers(name, values, 1).astype(np.float64, copy=False)
    require(f"the number of {name}", found.size, ">= 1", lambda n: n >= 1)
    if (wrong := ~np.isfinite(found)).any():
        raise ValueError(f"{name} must be finite, got {found[wrong][0]} at {wrong.argmax()}")
    return found


def whole_numbers(name: str, values: Any, axes: int) -> Int[np.ndarray, "..."]:
    """Convert lists, JAX arrays and floats without a fraction to an array of integers.

    Args:
      name: name of the values, for the message.
      values: whole numbers, nested ``axes`` levels deep.
      axes: required number of axes.

    Returns:
      an array of that many axes [...], int64.

    Raises:
      ValueError: if these are not whole numbers (bits are a mask), or have another number of axes.
    """
    try:
        found = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be whole numbers: {error}") from error
    if found.dtype == bool:
        raise ValueError(f"{name} must be whole numbers, got bits: give positions, not a mask")
    if not np.issubdtype(found.dtype, np.integer):
        found = real_numbers(name, found, axes)
        wrong = ~np.isfinite(found) | (found != np.floor(found))
        if wrong.any():
            raise ValueError(f"{name} must be whole numbers, got {found[wrong][0]:g}")
    return _of_axes(name, found, axes).astype(np.int64)


def _of_axes(name: str, found: np.ndarray, axes: int) -> np.ndarray:
    if found.ndim != axes:
        raise ValueError(f"{name} must have {axes} axes, got the shape {list(found.shape)}")
    return found


def label_rows(
    labels: ArrayLike | Sequence[int] | Sequence[Sequence[int]],
) -> Int[np.ndarray, "N L"]:
    """Convert labels: one per query, several, or lists of different lengths.

    Args:
      labels: integers [N] or [N, L], or N lists of integers.

    Returns:
      [N, L], -1 pads.

    Raises:
      ValueError: if a label is not an integer.
    """
    try:
        array = np.asarray(labels)
    except ValueError:  # lists of different lengths
        rows = [np.atleast_1d(row) for row in labels]  # ty: ignore[not-iterable]
        longest = max(map(len, rows))
        array = np.array([np.pad(row, (0, longest - len(row)), constant_values=-1) for row in rows])
        if all(np.issubdtype(row.dtype, np.integer) for row in rows if row.size):
            array = array.astype(np.int64)  # an empty list has a float dtype
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"labels must be rows of theta, whole numbers, got {array.dtype}")
    return array[:, None] if array.ndim == 1 else array


def require_length(name: str, values: Sized, length: int) -> None:
    """Raise ValueError unless there are ``length`` values.

    Args:
      name: name of the values, for the message.
      values: values to count.
      length: required number of values.

    Raises:
      ValueError: if the number of values differs.
    """
    require(f"the length of {name}", len(values), str(length), lambda n: n == length)


def require_different(name: str, values: Sequence[str]) -> None:
    """Raise ValueError, with both positions, if a value occurs twice."""
    first: dict[str, int] = {}
    for place, value in enumerate(values):
        if first.setdefault(value, place) != place:
            raise ValueError(f"{name} must differ: {value!r} is at {first[value]} and {place}")


def require_texts(texts: Sequence[str]) -> None:
    """Raise an error for the first text that is not a string, or is blank.

    Raises:
      TypeError: if ``texts`` is a single string, or a text is not a string.
      ValueError: if a text is empty or blank.
    """
    if isinstance(texts, str):
        raise TypeError(f"texts must be a list of strings, got the single string {texts[:40]!r}")
    for position, text in enumerate(texts):
        if isinstance(text, np.ndarray | jax.Array):  # `Task.queries_for` of a task without texts
            raise TypeError(
                f"text {position} must be a string, got a vector, as of a task without texts: give "
                "Task.from_arrays(.., texts=), or load_task(..)"
            )
        if not isinstance(text, str):
            raise TypeError(f"text {position} must be a string, got {type(text).__name__}")
        if not text.strip():
            raise ValueError(f"text {position} of {len(texts)} is empty: {text!r}")
