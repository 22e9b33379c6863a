"""Tool documents: their fields, the rules of a tool profile, expansion by language models
(Tool-REX)."""

from jaxret.documents.expansion import (
    Outcome,
    Prompts,
    Stages,
    expand_documents,
    expand_question,
    judge_question,
)
from jaxret.documents.fields import (
    GROUPS,
    Audit,
    Reading,
    audit,
    canonical_fields,
    original,
    profile,
    read,
    unknown_fields,
)
from jaxret.documents.tool_profile import Rules, expand, violations

__all__ = [
    "GROUPS",
    "Audit",
    "Outcome",
    "Prompts",
    "Reading",
    "Rules",
    "Stages",
    "audit",
    "canonical_fields",
    "expand",
    "expand_documents",
    "expand_question",
    "judge_question",
    "original",
    "profile",
    "read",
    "unknown_fields",
    "violations",
]
