"""Networks in Flax: BERT, MPNet, DeBERTa and Qwen3 with their published weights, and their heads.

A network is a `Module`, two pure functions: ``init(key) -> params`` and ``apply(params, ...)``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
