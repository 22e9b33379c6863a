"""Text encoders: a checkpoint's tokenizer, network and weights.

Unlike the rest of the library an encoder holds a compiled function, so that the programs for its
few padded lengths outlive a call.

Letters: n texts, B texts in a batch, L tokens per text, H hidden width, d width of the vectors.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal, Self, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float
from tokenizers import Tokenizer  # the same tokens as AutoTokenizer, which takes seconds to import

from jaxret.encoders.fetch import ARCHIVES, fetched_folder
from jaxret.encoders.specs import ENCODERS, EncoderSpec, Kind, Pooling
from jaxret.nn import checkpoints
from jaxret.nn.backbone import Backbone, read_backbone, shallow
from jaxret.nn.functional import Module
from jaxret.nn.layers import Compute, cls_pool, last_pool, mean_pool
from jaxret.nn.placement import memory_report
from jaxret.nn.tensor_files import weight_files
from jaxret.runtime.validate import require, require_texts
from jaxret.types import Params

POOLINGS = {"mean": mean_pool, "cls": cls_pool, "last": last_pool}
DType: TypeAlias = Literal["float32", "bfloat16"]


@lru_cache
def _compiled(network: Module, pooling: Pooling, width: int) -> Callable[..., Float[Array, "B d"]]:
    """Compile the function from tokens to unit vectors, once for all encoders of a network."""

    def embed(params, ids, mask):
        pooled = POOLINGS[pooling](network.apply(params, ids, mask), mask)[:, :width]
        return pooled / jnp.linalg.norm(pooled, axis=-1, keepdims=True)

    return jax.jit(embed)


@dataclass(frozen=True, kw_only=True)
class TextEncoder:
    """A checkpoint with its pooling and prefixes; weights are read when first needed."""

    spec: EncoderSpec
    backbone: Backbone
    directory: Path
    sha256: str | None  # hash of published weights; None: other weights
    weights: Params | None = None  # replaces the checkpoint's weights; see `with_weights`
    cut: int | None = None  # d, if less than the network's width
    dtype: DType = "float32"  # type of parameters and matrix products
    mesh: Mesh | None = None  # splits the parameters of a Qwen3 over its axis 'model'

    def with_weights(self, weights: Params) -> Self:
        """Return the encoder with other parameters, such as trained ones, without recompiling."""
        return replace(self, weights=weights, sha256=None)

    def pool(self, hidden: Float[Array, "B L H"], mask: Bool[Array, "B L"]) -> Float[Array, "B d"]:
        """Pool hidden states, and cut the vectors to width d.

        Returns:
          Vectors [B, d], not yet of length 1.
        """
        return POOLINGS[self.spec.pooling](hidden, mask)[:, : self.width]

    @cached_property
    def network(self) -> Module:
        return self.backbone.network(Compute(dtype=self.dtype))

    @property
    def width(self) -> int:
        """Width d of the vectors."""
        return self.backbone.config.hidden if self.cut is None else self.cut

    @cached_property
    def params(self) -> Params:
        """Weights of the checkpoint; the hash of published weights is checked."""
        if self.weights is not None:
            return self.weights
        if self.sha256 is not None:
            checkpoints.verify_sha256(self.directory / "model.safetensors", self.sha256)
        return self.backbone.load(self.directory, dtype=self.dtype, mesh=self.mesh)

    def memory(self) -> str:
        """Describe the memory that the parameters take, without reading them."""
        return memory_report(self.backbone.shapes(dtype=self.dtype, mesh=self.mesh))

    @cached_property
    def compiled(self) -> Callable[..., Float[Array, "B d"]]:
        """The program from (params, ids, mask) to unit vectors."""
        return _compiled(self.network, self.spec.pooling, self.width)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Read the tokenizer, which cuts texts at ``max_tokens`` tokens and does not pad.

        Raises:
          ValueError: if the tokenizer has more tokens than the network, or does not append the
            closing token that the encoder needs.
        """
        tokenizer = Tokenizer.from_file(str(self.directory / "tokenizer.json"))
        if (size := tokenizer.get_vocab_size()) > self.backbone.config.vocab_size:
            raise ValueError(
                f"{self.directory}: the tokenizer has {size} tokens and the weights "
                f"{self.backbone.config.vocab_size}: they do not belong together"
            )
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.spec.max_tokens)
        closing = self.spec.closing
        if closing is not None and tokenizer.encode("a").ids[-1] != tokenizer.token_to_id(closing):
            raise ValueError(
                f"{self.directory}: the tokenizer does not append {closing}, whose vector is the "
                "text's: take tokenizer.json from the published encoder"
            )
        return tokenizer

    def tokens(
        self, texts: Sequence[str], *, kind: Kind, limit: int | None = None
    ) -> list[list[int]]:
        """Tokenise texts with their prefix and special tokens, without padding.

        Args:
          texts: nonempty texts.
          kind: kind of text, which selects the prefix.
          limit: largest number of tokens, if below ``max_tokens``; the closing token is kept.
        """
        prefixed = with_prefix(texts, self.spec.prefix(kind))
        numbers = [text.ids for text in self.tokenizer.encode_batch(prefixed)]
        if limit is None:
            return numbers
        return [ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]] for ids in numbers]

    @cached_property
    def fingerprint(self) -> str:
        """Hash everything that determines a vector, except the text with its prefix."""
        weights = self.sha256 or self._hash_weights()
        words = checkpoints.sha256(self.directory / "tokenizer.json")
        parts = (weights, words, self.backbone.config, self.spec.pooling, self.spec.max_tokens)
        parts += () if self.cut is None else (self.cut,)
        return digest(repr(parts if self.dtype == "float32" else (*parts, self.dtype)))

    def _hash_weights(self) -> str:
        if self.weights is None:
            of_files = [checkpoints.sha256(file) for file in weight_files(self.directory)]
            return of_files[0] if len(of_files) == 1 else digest("".join(of_files))
        content = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(self.weights))
        return hashlib.sha256(content).hexdigest()


def load_encoder(
    name: str,
    path: str | Path | None = None,
    *,
    instruction: str | None = None,
    width: int | None = None,
    layers: int | None = None,
    dtype: DType = "float32",
    mesh: Mesh | None = None,
) -> TextEncoder:
    """Load one of `ENCODERS`.

    Args:
      name: name of the encoder, which determines pooling, prefixes and the length of texts.
      path: your own checkpoint, to use instead of the published weights.
      instruction: instruction in the prefix of queries; None: the encoder's default; empty: none.
      width: d, if less than the network's width: the first d numbers, scaled to length 1. Qwen3's
        encoders are trained for this, from 32 (Kusupati et al. 2022).
      layers: number of first blocks to use; None: all blocks.
      dtype: dtype of parameters and matrix products; bfloat16 halves the memory. (In float16
        Qwen3's 8B overflows.)
      mesh: mesh with an axis ``model``, over which the parameters of a Qwen3 are split.

    Raises:
      ValueError: if the name is unknown, the checkpoint is of another kind or lacks the width or
        layers, or the encoder takes no instruction.
      FileNotFoundError: if the weights are not found.
    """
    if name not in ENCODERS:
        raise ValueError(f"encoder must be one of {sorted(ENCODERS)}, got {name!r}")
    spec = ENCODERS[name]
    if instruction is not None:
        if not spec.instructed:
            known = sorted(one.name for one in ENCODERS.values() if one.instructed)
            raise ValueError(f"{name} takes no instruction, got {instruction!r}; {known} do")
        spec = spec._replace(instruction=instruction)
    fetched = fetched_folder(name) if name in ARCHIVES else None
    directory = checkpoints.locate(path, package=spec.package, fetched=fetched, hub_id=spec.hub_id)
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
    if layers is None:
        return encoder
    backbone, weights = shallow(backbone, encoder.params, layers)
    return replace(encoder, backbone=backbone, weights=weights, sha256=None)


def with_prefix(texts: Sequence[str], prefix: str) -> list[str]:
    """Add a prefix to each text.

    Returns:
      The n strings with the prefix.

    Raises:
      TypeError: if ``texts`` is a single string, or a text is not a string.
      ValueError: if a text is empty or blank.
    """
    require_texts(texts)
    return [prefix + text for text in texts]


def digest(text: str) -> str:
    """Hash a text."""
    return hashlib.sha256(text.encode()).hexdigest()
