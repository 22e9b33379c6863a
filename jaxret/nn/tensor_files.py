"""Lazily read tensors of a checkpoint, in one file or in shards.

A large checkpoint has files ``model-00001-of-00004.safetensors``, .. and an index from tensors to
shards.
"""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARDS = "model-*-of-*.safetensors"

_DTYPES = {  # dtypes of weights in the safetensors format
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": jnp.bfloat16,  # which safetensors.numpy cannot read
    "I64": np.int64,
    "I32": np.int32,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


def load_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Open the tensors of a checkpoint by name, as memory-mapped arrays.

    The arrays are read-only, bfloat16 included, and only the rows that are used are read. Do not
    overwrite a file while an array is in use.

    Args:
      path: a ``.safetensors`` file, or a directory with ``model.safetensors`` or with shards.

    Raises:
      FileNotFoundError: if files are missing.
      ValueError: if a file or the index is damaged, or they are inconsistent.
    """
    path = Path(path)
    if not path.is_dir():
        return _windows(path)
    shards = {file.name: _windows(file) for file in weight_files(path)}
    if set(shards) != {WEIGHTS}:
        promised = set(_read_index(path / INDEX).items())
        stored = {(tensor, name) for name, shard in shards.items() for tensor in shard}
        if odd := sorted(f"{tensor} in {name}" for tensor, name in promised ^ stored):
            raise ValueError(
                f"{path / INDEX} and the shards beside it do not belong together: only one of "
                f"them has {', '.join(odd)}"
            )
    return {name: tensor for shard in shards.values() for name, tensor in shard.items()}


def weight_files(directory: Path) -> list[Path]:
    """Return ``model.safetensors``, or the shards of ``model.safetensors.index.json``, in order.

    Raises:
      FileNotFoundError: if files are missing.
      ValueError: if the index is damaged.
    """
    directory = Path(directory)
    whole, index = directory / WEIGHTS, directory / INDEX
    if whole.is_file() or not index.is_file():
        files = [whole]
    else:
        files = [directory / name for name in sorted(set(_read_index(index).values()))]
    if missing := [file.name for file in files if not file.is_file()]:
        raise FileNotFoundError(f"{directory} has no {' and no '.join(missing)}: fetch it again")
    return files


def _windows(path):
    """Map names to read-only arrays on a ``.safetensors`` file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):
            pass  # the header and the length of the file are checked
    except SafetensorError as error:
        size = path.stat().st_size
        raise ValueError(
            f"{path} ({size:,} bytes) is not a whole safetensors file ({error}): "
            "fetch or copy it again"
        ) from error
    raw = np.memmap(path, mode="r").view(np.ndarray)
    start = 8 + int.from_bytes(raw[:8].tobytes(), "little")
    header = json.loads(raw[8:start].tobytes())
    header.pop("__metadata__", None)
    if odd := {name: t["dtype"] for name, t in header.items() if t["dtype"] not in _DTYPES}:
        raise ValueError(f"{path}: tensors must be one of {', '.join(_DTYPES)}, got {odd}")

    def window(dtype, shape, data_offsets):
        begin, end = (start + offset for offset in data_offsets)
        return raw[begin:end].view(_DTYPES[dtype]).reshape(shape)

    return {name: window(**tensor) for name, tensor in header.items()}


def _read_index(path):
    """Read the index, from tensors to names of shards."""
    try:
        shards = json.loads(path.read_text())["weight_map"]
        if not shards or not all(isinstance(name, str) for name in shards.values()):
            raise TypeError("weight_map must have names of tensors and of files")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is not an index of shards ({type(error).__name__}: {error}): fetch it again"
        ) from error
    return shards
