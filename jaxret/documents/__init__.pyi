from .expansion import (
    Outcome as Outcome,
    Prompts as Prompts,
    Stages as Stages,
    expand_documents as expand_documents,
    expand_question as expand_question,
    judge_question as judge_question,
)
from .fields import (
    GROUPS as GROUPS,
    Audit as Audit,
    Reading as Reading,
    audit as audit,
    canonical_fields as canonical_fields,
    original as original,
    profile as profile,
    read as read,
    unknown_fields as unknown_fields,
)
from .tool_profile import (
    Rules as Rules,
    expand as expand,
    violations as violations,
)
