from .queries import (
    Accepted as Accepted,
    Draft as Draft,
    Iteration as Iteration,
    Prompts as Prompts,
    Settings as Settings,
    Writers as Writers,
    batch_questions as batch_questions,
    check_settings as check_settings,
    descriptions as descriptions,
    generate as generate,
    seed_examples as seed_examples,
)
