"""Language models behind an OpenAI-compatible endpoint: a client with a memory, prompts as files,
and models as stages of a pipeline."""

from jaxret.llm.chat import Chat
from jaxret.llm.endpoint import (
    Endpoint,
    Malformed,
    Messages,
    Schema,
    Unanswered,
    object_schema,
)
from jaxret.llm.estimates import Workload, announcement, count_tokens
from jaxret.llm.prompts import Prompt, load_prompt
from jaxret.llm.stages import OutOfReach, Price, Problem, Stage, without_thoughts

__all__ = [
    "Chat",
    "Endpoint",
    "Malformed",
    "Messages",
    "OutOfReach",
    "Price",
    "Problem",
    "Prompt",
    "Schema",
    "Stage",
    "Unanswered",
    "Workload",
    "announcement",
    "count_tokens",
    "load_prompt",
    "object_schema",
    "without_thoughts",
]
