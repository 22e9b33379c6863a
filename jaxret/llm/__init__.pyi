from .chat import (
    Chat as Chat,
    Endpoint as Endpoint,
    Malformed as Malformed,
    Messages as Messages,
    Schema as Schema,
    Unanswered as Unanswered,
    object_schema as object_schema,
)
from .prompts import (
    Prompt as Prompt,
    load_prompt as load_prompt,
    replace_prompts as replace_prompts,
)
from .stages import (
    Answers as Answers,
    OutOfReach as OutOfReach,
    Price as Price,
    Problem as Problem,
    Stage as Stage,
    Workload as Workload,
    Wrong as Wrong,
    announcement as announcement,
    ask_checked as ask_checked,
    count_tokens as count_tokens,
    json_object as json_object,
    sentence as sentence,
    without_thoughts as without_thoughts,
)
