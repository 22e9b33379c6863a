"""Asks a language model which of two queries is written better, in both orders.

The paper's judge sees each pair once, so a preference for a position cannot be noticed. Here the
judge sees (a, b) and (b, a). A query wins if both verdicts prefer it; otherwise the pair is a tie.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxret.llm import Prompt, Stage, Wrong, ask_checked, json_object, load_prompt, object_schema

CRITERIA = ("naturalness", "fluency", "coherence", "overall")
PROMPT = load_prompt(Path(__file__).with_name("judge.txt"), ("first", "second"))
VALUE = {"A": 1, "B": -1, "tie": 0}
SCHEMA = object_schema(**{key: {"enum": list(VALUE)} for key in CRITERIA})


class Verdicts(NamedTuple):
    """Verdicts on n pairs in both orders: 1 for the first query, -1 for the second, 0 for a tie."""

    forward: Int[np.ndarray, "n 4"]  # with a first; columns are `CRITERIA`
    backward: Int[np.ndarray, "n 4"]  # with b first
    failures: Counter[str]  # answers by kind; pairs with a lost answer are not among the n


def compare(
    stage: Stage, pairs: Sequence[tuple[str, str]], *, attempts: int = 3, prompt: Prompt = PROMPT
) -> Verdicts:
    """Ask about every pair in both orders.

    Returns:
      The verdicts [n, 4] on the pairs that have valid answers in both orders.
    """
    questions = [prompt.messages(first=a, second=b) for a, b in pairs]
    questions += [prompt.messages(first=b, second=a) for a, b in pairs]
    answers = ask_checked(
        stage,
        questions,
        [check] * len(questions),
        attempts=attempts,
        title="judge",
        schemas=[SCHEMA] * len(questions),
    )
    n = len(pairs)
    both = [
        (first, second)
        for first, second in zip(answers.values[:n], answers.values[n:], strict=True)
        if first is not None and second is not None
    ]
    verdicts = np.array(both, np.int32).reshape(len(both), 2, len(CRITERIA))
    return Verdicts(forward=verdicts[:, 0], backward=verdicts[:, 1], failures=answers.failures)


def check(text: str) -> tuple[int, ...]:
    """Read an answer as 1, -1 or 0 for each of `CRITERIA`."""
    content = json_object(text, CRITERIA)
    for criterion in CRITERIA:
        if not isinstance(content[criterion], str) or content[criterion] not in VALUE:
            raise Wrong("verdict", f'{criterion} must be "A", "B" or "tie"')
    return tuple(VALUE[content[criterion]] for criterion in CRITERIA)


def outcomes(verdicts: Verdicts) -> dict[str, Float[np.ndarray, " n"]]:
    """Return the outcome of every pair by criterion, as 0 or 1, so that means are rates.

    They are ``{criterion}/win``, ``/tie`` and ``/loss`` of query a, and ``/position``, 1 where the
    judge preferred the same position in both orders.
    """
    a, b = verdicts.forward, -verdicts.backward  # in both, 1 means that a is better
    by_name = {}
    for column, criterion in enumerate(CRITERIA):
        x, y = a[:, column], b[:, column]
        win, loss = (x == 1) & (y == 1), (x == -1) & (y == -1)
        rows = {"win": win, "tie": ~(win | loss), "loss": loss, "position": x * y == -1}
        by_name |= {f"{criterion}/{name}": row.astype(np.float64) for name, row in rows.items()}
    return by_name
