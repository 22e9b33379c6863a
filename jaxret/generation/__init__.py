"""Queries for a catalogue of tools, written by a language model, as for ToolBank (Moon et al. 2024,
section 3 and appendix C)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
