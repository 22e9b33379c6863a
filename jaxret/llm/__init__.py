"""Language models behind an OpenAI-compatible endpoint: a client with a cache, prompts in files,
and models as stages of a pipeline."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
