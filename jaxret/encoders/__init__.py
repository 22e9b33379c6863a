"""Texts -> unit vectors, by published encoders or any callable.

    encoder = load_encoder("minilm")
    theta = encode(encoder, documents, kind="document", cache=cache_directory())

The boundary between text and arrays: everything past it sees ``[n, d]``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
