"""Texts -> unit vectors, by published encoders or your own.

    encoder = load_encoder("minilm")
    theta = encode(encoder, documents, kind="document", cache=cache_directory())

The boundary between text and arrays: everything past it sees ``[n, d]``.
"""

from typing import TYPE_CHECKING

from jaxret.lazy import lazy

if TYPE_CHECKING:
    from jaxret.encoders import tiny_qwen3
    from jaxret.encoders.cache import cache_directory
    from jaxret.encoders.encoding import encode, forward
    from jaxret.encoders.padding import batches, pad
    from jaxret.encoders.specs import ENCODERS, TASK, EncoderSpec, Kind
    from jaxret.encoders.text_encoder import DType, TextEncoder, load_encoder

__all__ = [
    "ENCODERS",
    "TASK",
    "DType",
    "EncoderSpec",
    "Kind",
    "TextEncoder",
    "batches",
    "cache_directory",
    "encode",
    "forward",
    "load_encoder",
    "pad",
    "tiny_qwen3",
]
__getattr__, __dir__ = lazy(
    __name__,
    {
        "cache": ("cache_directory",),
        "encoding": ("encode", "forward"),
        "padding": ("batches", "pad"),
        "specs": ("ENCODERS", "TASK", "EncoderSpec", "Kind"),
        "text_encoder": ("DType", "TextEncoder", "load_encoder"),
        "tiny_qwen3": (),
    },
)
