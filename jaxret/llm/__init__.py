"""Language models behind an OpenAI-compatible endpoint: a client with a cache, prompts in files,
and models as stages of a pipeline."""

from jaxret.llm.chat import (
    Chat,
    Endpoint,
    Malformed,
    Messages,
    Schema,
    Unanswered,
    object_schema,
)
from jaxret.llm.prompts import Prompt, load_prompt, replace_prompts
from jaxret.llm.stages import (
    Answers,
    OutOfReach,
    Price,
    Problem,
    Stage,
    Workload,
    Wrong,
    announcement,
    ask_checked,
    count_tokens,
    json_object,
    sentence,
    without_thoughts,
)

__all__ = [
    "Answers",
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
    "Wrong",
    "announcement",
    "ask_checked",
    "count_tokens",
    "json_object",
    "load_prompt",
    "object_schema",
    "replace_prompts",
    "sentence",
    "without_thoughts",
]
