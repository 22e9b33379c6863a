"""Which of two queries is written better? A language model says, asked in both orders.

The paper's judge sees each pair once, and its words may favour a position. Here it sees (a, b) and
(b, a): a win counts only if both say the same, everything else is a tie.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxret.generation.checked_answers import PROMPTS, Wrong, ask_checked, json_object
from jaxret.llm import Stage, load_prompt, object_schema

CRITERIA = ("naturalness", "fluency", "coherence", "overall")
PROMPT = load_prompt(PROMPTS / "judge.txt", ("first", "second"))
VALUE = {"A": 1, "B": -1, "tie": 0}
SCHEMA = object_schema(**{key: {"enum": list(VALUE)} for key in CRITERIA})


class Verdicts(NamedTuple):
    """What the judge said of n pairs, in each order; 1 for what stood first, -1 for second."""

    forward: Int[np.ndarray, "n 4"]  # a first; columns are `CRITERIA`
    backward: Int[np.ndarray, "n 4"]  # b first
    failures: Counter[str]  # kind to answers; a pair with a lost answer is not among the n


def compare(stage: Stage, pairs: Sequence[tuple[str, str]], *, attempts: int = 3) -> Verdicts:
    """Asks about every pair twice.

    Args:
      stage: the judge.
      pairs: (a, b), texts of queries.
      attempts: at an answer that passes the checks.

    Raises:
      OutOfReach: the endpoint does not answer.
    """
    asked = [PROMPT.messages(first=a, second=b) for a, b in pairs]
    asked += [PROMPT.messages(first=b, second=a) for a, b in pairs]
    answers = ask_checked(
        stage,
        asked,
        [check] * len(asked),
        attempts=attempts,
        title="judge",
        schemas=[SCHEMA] * len(asked),
    )
    n = len(pairs)
    both = [
        (there, back)
        for there, back in zip(answers.values[:n], answers.values[n:], strict=True)
        if there is not None and back is not None
    ]
    verdicts = np.array(both, np.int32).reshape(len(both), 2, len(CRITERIA))
    return Verdicts(forward=verdicts[:, 0], backward=verdicts[:, 1], failures=answers.failures)


def check(text: str) -> tuple[int, ...]:
    """Reads an answer: 1, -1 or 0 for each of `CRITERIA`.

    Raises:
      Wrong: ``not_json``, ``fields``, or ``verdict`` where one is neither A, B nor tie.
    """
    content = json_object(text, CRITERIA)
    for criterion in CRITERIA:
        if not isinstance(content[criterion], str) or content[criterion] not in VALUE:
            raise Wrong("verdict", f'{criterion} must be "A", "B" or "tie"')
    return tuple(VALUE[content[criterion]] for criterion in CRITERIA)


def outcomes(verdicts: Verdicts) -> dict[str, Float[np.ndarray, " n"]]:
    """Says of every pair who won, by criterion: 0 or 1, whose means are the rates.

    Returns:
      arrays [n]: ``{criterion}/win``, ``/tie`` and ``/loss`` of a; and ``/position``: the judge
      preferred the same place in both orders, whatever stood there.
    """
    a, b = verdicts.forward, -verdicts.backward  # both: 1 if a is better
    by_name = {}
    for column, criterion in enumerate(CRITERIA):
        x, y = a[:, column], b[:, column]
        win, loss = (x == 1) & (y == 1), (x == -1) & (y == -1)
        rows = {"win": win, "tie": ~(win | loss), "loss": loss, "position": x * y == -1}
        by_name |= {f"{criterion}/{name}": row.astype(np.float64) for name, row in rows.items()}
    return by_name
