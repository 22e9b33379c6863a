"""Encoders of texts as vectors: published ones, or any callable.

    encoder = load_encoder("minilm")
    theta = encode(encoder, documents, kind="document", cache=cache_directory())

Encoders are the boundary between texts and arrays ``[n, d]``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
