"""Encodes texts with any callable ``list[str] -> [n, d]``: a hosted model, a library, a function.

    task = jr.load_task("deskbank", encoder=sentence_transformer.encode)

    def embed(texts):
        return client.embeddings(texts, model="large-3")
    embed.cache_name = "large-3"  # the vectors are kept on disk under this name

The vectors are used as the callable returns them; they are not scaled to length 1. A callable does
not reveal which model it runs, so its vectors are kept on disk only if it has a ``cache_name``:
another model needs another name.

Letters: n texts, d embedding width.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float32

from jaxret.encoders.cache import read_vectors, write_vectors
from jaxret.encoders.text_encoder import TextEncoder, digest, with_prefix
from jaxret.runtime import distributed
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import matrix_of

SHARD = 512  # texts in a call, and between two writes to the cache

TextFunction: TypeAlias = Callable[[list[str]], Any]  # -> what NumPy reads as numbers [n, d]
Encoder: TypeAlias = TextEncoder | TextFunction


def encoder_name(encoder: Encoder) -> str:
    """Return the name of an encoder, for tables, errors and descriptions of saved embeddings."""
    if isinstance(encoder, TextEncoder):
        return encoder.spec.name
    named = (getattr(encoder, key, None) for key in ("cache_name", "__name__"))
    return next((name for name in named if isinstance(name, str)), type(encoder).__name__)


def encode_with(
    function: TextFunction, texts: Sequence[str], *, cache: Path | None, progress: bool = True
) -> Float32[np.ndarray, "n d"]:
    """Encode texts with a callable, in their order; equal texts are encoded once.

    With several processes only the first encodes, and all get its vectors.

    Args:
      function: takes a list of at most `SHARD` strings and returns as many vectors [n, d].
      texts: one or more.
      cache: folder of kept vectors, which is read and written only if the callable has a
        ``cache_name``; None keeps nothing.
      progress: whether to show a bar.

    Returns:
      the vectors [n, d], float32.

    Raises:
      TypeError, ValueError: for a text that is not a string or is blank, by its position; for an
        output that is not one finite vector per text, or whose width differs from an earlier one;
        for a damaged cache file, by its name.
    """
    if not distributed.leads():
        return distributed.agreed(np.zeros((len(texts), distributed.agreed(0)), np.float32))
    texts, name = with_prefix(texts, ""), encoder_name(function)
    if not texts:
        raise ValueError(f"encoder {name!r} was given no texts: one or more are needed")
    kept = getattr(function, "cache_name", None)
    folder = None if cache is None or kept is None else Path(cache) / digest(f"callable {kept}")
    vectors = {} if folder is None else read_vectors(folder, None)
    different = list(dict.fromkeys(texts))
    todo = [text for text in different if digest(text) not in vectors]
    width = len(next(iter(vectors.values()))) if vectors else None
    done = len(different) - len(todo)
    with Progress(
        desc=f"{name} ({done} of {len(different)} cached)",
        total=len(different),
        initial=done,
        unit="text",
        disable=not progress or not todo,
    ) as bar:
        for start in range(0, len(todo), SHARD):
            part = todo[start : start + SHARD]
            rows = _checked(name, function(list(part)), part, width)
            width = rows.shape[1]
            fresh = dict(zip(map(digest, part), rows, strict=True))
            if folder is not None:
                write_vectors(folder, fresh)
            vectors |= fresh
            bar.update(len(part))
    found = np.stack([vectors[digest(text)] for text in texts])
    distributed.agreed(found.shape[1])
    return distributed.agreed(found)


def _checked(
    name: str, output: Any, texts: list[str], width: int | None
) -> Float32[np.ndarray, "n d"]:
    """Convert the output of a callable to an array, or raise an error that says what is wrong."""
    owner = f"the output of encoder {name!r} for {len(texts)} texts"
    rows = matrix_of(owner, output)
    if len(rows) != len(texts):
        raise ValueError(f"{owner} must be [{len(texts)}, d], got {list(rows.shape)}")
    if not (finite := np.isfinite(rows).all(axis=1)).all():
        raise ValueError(f"{owner} is not finite for the text {texts[finite.argmin()][:80]!r}")
    if width is not None and rows.shape[1] != width:
        raise ValueError(
            f"{owner} has width {rows.shape[1]} and its earlier vectors {width}: a callable must "
            "keep its width; another model needs another cache_name"
        )
    return rows
