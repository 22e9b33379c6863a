"""A cache of vectors on disk: hash -> float32 vector, in immutable files.

A folder holds shards, each written under a temporary name and then renamed. Several processes can
therefore write at once without locks, and an interruption leaves no partial shard.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import numpy as np


def cache_directory() -> Path:
    """Return ``$JAXRET_CACHE``, or ``~/.cache/jaxret``."""
    return Path(os.environ.get("JAXRET_CACHE") or Path.home() / ".cache" / "jaxret")


def read_vectors(folder: Path, width: int | None) -> dict[str, np.ndarray]:
    """Read all vectors ``[width]`` of a folder by hash; none if there is no such folder.

    Args:
      folder: folder of the shards.
      width: width of the vectors; None: any width, but the same in all shards.

    Raises:
      ValueError: if a shard is damaged, which can then be deleted.
    """
    by_hash = {}
    for path in folder.glob("*.npy"):
        try:
            shard = np.load(path)
            if width is None:
                width = len(shard[:1]["vector"].reshape(-1)) if shard.dtype.names else 0
            if shard.dtype != _layout(width):
                raise ValueError(f"it holds {shard.dtype}")
        except (ValueError, OSError, EOFError) as error:
            raise ValueError(
                f"the cache file {path} is damaged ({error}): delete it, "
                "and its texts will be encoded again"
            ) from error
        by_hash |= zip(
            (key.decode() for key in shard["key"].tolist()), shard["vector"], strict=True
        )
    return by_hash


def write_vectors(folder: Path, vectors: Mapping[str, np.ndarray]) -> None:
    """Add a shard of vectors, all of one width, under SHA-256 hashes in hexadecimal."""
    folder.mkdir(parents=True, exist_ok=True)
    shard = np.empty(len(vectors), _layout(len(next(iter(vectors.values())))))
    shard["key"], shard["vector"] = list(vectors), list(vectors.values())
    part = folder / f"{uuid4().hex}.part"
    with open(part, "xb") as file:
        np.save(file, shard)
    os.replace(part, part.with_suffix(".npy"))


def _layout(width):
    return np.dtype([("key", "S64"), ("vector", np.float32, (width,))])
