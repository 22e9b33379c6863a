"""Data as ToolBank's, for any library of functions: a catalogue, and queries that a language
model writes for it (Moon et al. 2024, section 3 and appendix C)."""

from jaxret.generation import cooccurrence, judge, output
from jaxret.generation.catalogue import Catalogue, Tool
from jaxret.generation.checked_answers import Answers, Wrong, ask_checked
from jaxret.generation.libraries import LIBRARIES, build_catalogue
from jaxret.generation.near_duplicates import NearDuplicates
from jaxret.generation.pipeline import Accepted, Iteration, Settings, Writers, generate
from jaxret.generation.questions import Draft, descriptions, seed_examples

__all__ = [
    "LIBRARIES",
    "Accepted",
    "Answers",
    "Catalogue",
    "Draft",
    "Iteration",
    "NearDuplicates",
    "Settings",
    "Tool",
    "Writers",
    "Wrong",
    "ask_checked",
    "build_catalogue",
    "cooccurrence",
    "descriptions",
    "generate",
    "judge",
    "output",
    "seed_examples",
]
