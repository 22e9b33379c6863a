"""Texts -> unit vectors, with real weights and a cache on disk.

The boundary between text and arrays: it reads checkpoints, tokenises, and keeps what it has
encoded under the hash of all that decides a vector. Everything past it sees ``[n, d]``.

    encoder = load_encoder("minilm")
    theta = encode(encoder, documents, kind="document", cache=cache_directory())

Unlike the rest of the library it holds compiled code: one program an encoder, because texts are
padded here to a few lengths so that few shapes compile, and those must outlive a call.

Letters: n texts, B texts in a batch, L tokens a text, d embedding width.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float32, Int
from tqdm import tqdm

from jaxret import vector_cache
from jaxret.encoders import ENCODERS, Kind
from jaxret.nn import checkpoints
from jaxret.nn.backbone import read_backbone
from jaxret.padding import batches
from jaxret.text_encoder import DType, TextEncoder, digest, with_prefix
from jaxret.validate import require

SHARD = 512  # texts between two writes to the cache: what an interruption can lose


def load_encoder(
    name: str,
    path: Path | None = None,
    *,
    instruction: str | None = None,
    width: int | None = None,
    layers: int | None = None,
    dtype: DType = "float32",
    mesh: Mesh | None = None,
) -> TextEncoder:
    """Finds one of `ENCODERS`.

    Args:
      name: which encoder; it decides pooling, prefixes and the length of texts.
      path: a checkpoint of one's own in place of the published weights.
      instruction: the task that queries are told, in place of the encoder's own; empty for queries
        as they are.
      width: d, fewer numbers than the network gives: the first ones, of length 1 again. Qwen3's
        encoders are trained for that, from 32 on (Kusupati et al. 2022).
      layers: of the network, the first ones, where not all are wanted.
      dtype: of parameters and matrix products; bfloat16 halves the memory. (Not float16, in which
        Qwen3's 8B overflows.)
      mesh: has an axis ``model`` over which the parameters of a Qwen3 are split.

    Raises:
      ValueError: for an unknown name, a checkpoint of another kind, a width or layers that it does
        not have, or an instruction to an encoder that takes none.
      FileNotFoundError: if the weights are nowhere; the message lists where they were sought.
    """
    if name not in ENCODERS:
        raise ValueError(f"encoder must be one of {sorted(ENCODERS)}, got {name!r}")
    spec = ENCODERS[name]
    if instruction is not None:
        if not spec.instructed:
            known = sorted(one.name for one in ENCODERS.values() if one.instructed)
            raise ValueError(f"{name} takes no instruction, got {instruction!r}; {known} do")
        spec = spec._replace(instruction=instruction)
    directory = checkpoints.locate(path, package=spec.package, hub_id=spec.hub_id)
    backbone = read_backbone(directory / "config.json")
    limit = getattr(backbone.config, "max_positions", spec.max_tokens)  # DeBERTa has none
    if limit < spec.max_tokens:
        raise ValueError(
            f"{directory}: {name} reads {spec.max_tokens} tokens a text, "
            f"the weights have only {limit} positions"
        )
    whole = backbone.config.hidden
    require("width", width, f"null or in 1 .. {whole}", lambda d: d is None or 1 <= d <= whole)
    encoder = TextEncoder(
        spec=spec,
        backbone=backbone,
        directory=directory,
        sha256=spec.sha256 if path is None else None,
        cut=None if width == whole else width,
        dtype=dtype,
        mesh=mesh,
    )
    return encoder if layers is None else encoder.shallow(layers)


def encode(
    encoder: TextEncoder,
    texts: Sequence[str],
    *,
    kind: Kind,
    cache: Path | None,
    batch_tokens: int = 512,
    progress: bool = True,
) -> Float32[np.ndarray, "n d"]:
    """Encodes texts into unit vectors, in their order; equal texts are encoded once.

    Args:
      encoder: from `load_encoder`.
      texts: longer ones than the encoder's ``max_tokens`` are cut.
      kind: which prefix the texts get.
      cache: where vectors are kept, `cache_directory` or any other folder; None keeps nothing.
        Several processes may share it, and an interrupted call loses at most `SHARD` texts.
      batch_tokens: padded tokens a batch. 512 is best on 2 CPU cores; accelerators want more.
      progress: whether to show a bar.

    Raises:
      TypeError, ValueError: for a text that is no string or is blank, by its position, or for a
        damaged cache file, by its name.
    """
    prefixed = with_prefix(texts, encoder.spec.prefix(kind))
    keys = [digest(text) for text in prefixed]
    folder = None if cache is None else Path(cache) / encoder.fingerprint
    vectors = {} if folder is None else vector_cache.read(folder, encoder.width)
    todo = {key: text for key, text in zip(keys, prefixed, strict=True) if key not in vectors}
    names = sorted(todo, key=lambda key: -len(todo[key]))  # so that a shard's lengths are alike
    total = len(set(keys))
    with tqdm(
        desc=f"{encoder.spec.name}, {kind} ({total - len(todo)} of {total} cached)",
        total=total,
        initial=total - len(todo),
        unit="text",
        disable=not progress,
    ) as bar:
        for start in range(0, len(names), SHARD):
            part, fresh = names[start : start + SHARD], {}
            for rows, batch in _embed(encoder, [todo[name] for name in part], batch_tokens):
                fresh |= {part[row]: vector for row, vector in zip(rows, batch, strict=True)}
                bar.update(len(rows))
            if folder is not None:
                vector_cache.write(folder, fresh)
            vectors |= fresh
    return np.array([vectors[key] for key in keys], np.float32).reshape(-1, encoder.width)


def forward(
    encoder: TextEncoder, work: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]
) -> Iterator[tuple[Int[np.ndarray, "b"], Float32[np.ndarray, "b d"]]]:
    """The positions and vectors of each batch of `batches`, in order.

    Two batches are computed side by side: on 2 CPU cores that is 1.1 times as fast as one after the
    other, since a small matrix product does not fill both.
    """
    params, compiled = encoder.params, encoder.compiled

    def one(batch):
        rows, ids, mask = batch
        return rows, np.asarray(compiled(params, jnp.asarray(ids), jnp.asarray(mask)))[: len(rows)]

    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(one, work)


def cache_directory() -> Path:
    """``$JAXRET_CACHE``, or ``~/.cache/jaxret``."""
    return Path(os.environ.get("JAXRET_CACHE") or Path.home() / ".cache" / "jaxret")


def _embed(encoder, texts, batch_tokens):
    """Positions and their vectors, batch by batch."""
    tokens = [text.ids for text in encoder.tokenizer.encode_batch(texts)]
    return forward(encoder, batches(tokens, batch_tokens))
