"""Tool documents: their fields, the rules of a tool profile, expansion by language models
(Tool-REX)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
