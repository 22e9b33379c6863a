"""Queries for a catalogue of tools, written by a language model, as for ToolBank (Moon et al. 2024,
section 3 and appendix C)."""

from jaxret.generation.queries import (
    Accepted,
    Draft,
    Iteration,
    Prompts,
    Settings,
    Writers,
    batch_questions,
    check_settings,
    descriptions,
    generate,
    seed_examples,
)

__all__ = [
    "Accepted",
    "Draft",
    "Iteration",
    "Prompts",
    "Settings",
    "Writers",
    "batch_questions",
    "check_settings",
    "descriptions",
    "generate",
    "seed_examples",
]
