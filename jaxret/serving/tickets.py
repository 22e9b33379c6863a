"""What passes between a live index and who uses it: a search's answer, and what waits for feedback.

Letters: d width, k items shown.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Ticket(NamedTuple):
    """What a search found, and the number under which its feedback comes back."""

    number: int
    ids: list[str]  # k, the learner's own choice first
    scores: list[float]
    propensities: list[float]  # of the first: to be chosen; of the rest: to stand on the list


class Open(NamedTuple):
    """A ticket that nobody has answered."""

    query: Float[np.ndarray, " d"]
    rows: list[int]
    propensities: list[float]
