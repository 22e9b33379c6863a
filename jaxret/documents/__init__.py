"""Tool documents: read, compared, audited, expanded by language models and reviewed (Tool-REX)."""

from jaxret.documents import ablate, audit, dilution, output
from jaxret.documents.content import Coverage, Lengths, coverage, lengths
from jaxret.documents.fields import GROUPS, canonical_fields, unknown_fields
from jaxret.documents.pipeline import Outcome, Stages, expand_documents
from jaxret.documents.questions import expand_question, judge_question, refine_question
from jaxret.documents.reading import Reading, original, profile, read
from jaxret.documents.review import Review
from jaxret.documents.tool_profile import Rules, expand, violations

__all__ = [
    "GROUPS",
    "Coverage",
    "Lengths",
    "Outcome",
    "Reading",
    "Review",
    "Rules",
    "Stages",
    "ablate",
    "audit",
    "canonical_fields",
    "coverage",
    "dilution",
    "expand",
    "expand_documents",
    "expand_question",
    "judge_question",
    "lengths",
    "original",
    "output",
    "profile",
    "read",
    "refine_question",
    "unknown_fields",
    "violations",
]
