"""Texts -> unit vectors, by published encoders or your own.

    encoder = load_encoder("minilm")
    theta = encode(encoder, documents, kind="document", cache=cache_directory())

The boundary between text and arrays: everything past it sees ``[n, d]``. What needs a network is
imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jaxret.encoders.cache import cache_directory
from jaxret.encoders.padding import batches, pad
from jaxret.encoders.specs import ENCODERS, TASK, EncoderSpec, Kind

if TYPE_CHECKING:
    from jaxret.encoders.encoding import encode, forward
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
]
_LATER = dict.fromkeys(("encode", "forward"), "encoding")
_LATER |= dict.fromkeys(("DType", "TextEncoder", "load_encoder"), "text_encoder")


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
