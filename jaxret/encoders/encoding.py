"""Encodes texts as unit vectors, with a cache on disk.

The key of a vector is the hash of the encoder's fingerprint and of the text with its prefix.

Letters: n texts, B texts in a batch, L tokens per text, d embedding width.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, Int

from jaxret.encoders.cache import read_vectors, write_vectors
from jaxret.encoders.callables import Encoder, encode_with
from jaxret.encoders.padding import FINE, LENGTHS, batches
from jaxret.encoders.specs import Kind
from jaxret.encoders.text_encoder import TextEncoder, digest, with_prefix
from jaxret.runtime import distributed
from jaxret.runtime.progress import Progress

SHARD = 512  # texts between two writes to the cache
TOKENS = 512  # padded tokens per batch; best on 2 CPU cores, accelerators need more
MANY = 16_384  # number of texts from which finer lengths are worth their compilation


def encode(
    encoder: Encoder,
    texts: Sequence[str],
    *,
    kind: Kind,
    cache: Path | None,
    progress: bool = True,
    names: Sequence[str] | None = None,
) -> Float32[np.ndarray, "n d"]:
    """Encode texts as unit vectors, in the same order; equal texts are encoded once.

    With several processes only the first encodes, and all get its vectors.

    Args:
      encoder: encoder from `load_encoder`; or any callable ``list[str] -> [n, d]``, whose vectors
        are checked and not changed (`jaxret.encoders.callables`).
      texts: n texts, which are cut at the encoder's ``max_tokens``.
      kind: kind of text, which selects the prefix; a callable gets texts without a prefix.
      cache: folder of cached vectors, such as `cache_directory()`; None: no cache. Vectors of a
        callable are cached only if it has a ``cache_name``. Processes may share the folder, and an
        interrupted call loses at most `SHARD` texts.
      progress: whether to show a bar.
      names: ids of the texts; a warning then says how many are cut, with the first ids, unless a
        callable encodes them, whose length is not known. None: no warning.

    Returns:
      The vectors [n, d], float32, of length 1 unless a callable made them.

    Raises:
      TypeError, ValueError: if a text is not a string or is blank, a cache file is damaged, or the
        output of a callable is not [n, d].
    """
    if not isinstance(encoder, TextEncoder):
        return encode_with(encoder, texts, cache=cache, progress=progress)
    if not distributed.leads():
        rows = np.zeros((len(texts), encoder.width), np.float32)
        return distributed.agreed(rows)
    prefixed = with_prefix(texts, encoder.spec.prefix(kind))
    if names is not None:
        _warn_of_cut(encoder, prefixed, names, kind)
    keys = [digest(text) for text in prefixed]
    folder = None if cache is None else Path(cache) / encoder.fingerprint
    vectors = {} if folder is None else read_vectors(folder, encoder.width)
    todo = {key: text for key, text in zip(keys, prefixed, strict=True) if key not in vectors}
    names = sorted(todo, key=lambda key: -len(todo[key]))  # similar lengths in a shard
    lengths = FINE if len(names) >= MANY else LENGTHS
    total = len(set(keys))
    with Progress(
        desc=f"{encoder.spec.name}, {kind} ({total - len(todo)} of {total} cached)",
        total=total,
        initial=total - len(todo),
        unit="text",
        disable=not progress or not todo,
    ) as bar:
        for start in range(0, len(names), SHARD):
            part, fresh = names[start : start + SHARD], {}
            tokens = encoder.tokenizer.encode_batch([todo[name] for name in part])
            work = batches([text.ids for text in tokens], TOKENS, lengths)
            for rows, batch in forward(encoder, work):
                fresh |= {part[row]: vector for row, vector in zip(rows, batch, strict=True)}
                bar.update(len(rows))
            if folder is not None:
                write_vectors(folder, fresh)
            vectors |= fresh
    rows = np.array([vectors[key] for key in keys], np.float32).reshape(-1, encoder.width)
    return distributed.agreed(rows)


def forward(
    encoder: TextEncoder, work: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]
) -> Iterator[tuple[Int[np.ndarray, "b"], Float32[np.ndarray, "b d"]]]:
    """Yield the positions and vectors of each batch of `batches`, in order.

    Two batches run concurrently, which is 1.1 times as fast on 2 CPU cores, since a small matrix
    product does not use both.
    """
    params, compiled = encoder.params, encoder.compiled

    def one(batch):
        rows, ids, mask = batch
        return rows, np.asarray(compiled(params, jnp.asarray(ids), jnp.asarray(mask)))[: len(rows)]

    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(one, work)


def _warn_of_cut(
    encoder: TextEncoder, texts: Sequence[str], names: Sequence[str], kind: Kind
) -> None:
    """Warn of texts with more tokens than ``max_tokens``."""
    most = encoder.spec.max_tokens
    few = most - encoder.tokenizer.num_special_tokens_to_add(False)
    # A token is a byte or more, so that shorter texts need not be read.
    long = [place for place, text in enumerate(texts) if len(text.encode()) > few]
    cut: list[int] = []
    for start in range(0, len(long), SHARD):
        part = long[start : start + SHARD]
        tokens = encoder.tokenizer.encode_batch([texts[place] for place in part])
        cut += [x for x, text in zip(part, tokens, strict=True) if text.overflowing]
    if cut:
        first = ", ".join(repr(names[place]) for place in cut[:3])
        warnings.warn(
            f"{len(cut):,} of {len(texts):,} {kind} texts are longer than the "
            f"{most} tokens that {encoder.spec.name} reads, and are cut: "
            f"{first}{', ..' if len(cut) > 3 else ''}; put what matters first, or shorten them",
            stacklevel=4,
        )
