"""What retrievers and rerankers return, and metrics and run files read."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32


class Ranking(NamedTuple):
    """The k best items of each of N queries, best first, on the host.

    A row with fewer than k items ends in -1 with the score minus infinity.
    """

    items: Int32[np.ndarray, "N k"]  # rows of the catalogue
    scores: Float32[np.ndarray, "N k"]
