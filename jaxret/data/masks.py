"""Parts of an online experiment's queries, as masks: what chooses, what is held out, the rest."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from jaxret.data.dataset import split_by_group


class Masks(NamedTuple):
    """Whose query is whose: masks over the queries, no question on two sides.

    Of all seeds [N], or with a line a seed [S, N].
    """

    validation: Bool[np.ndarray, "*S N"]  # settings are chosen on these
    heldout: Bool[np.ndarray, "*S N"]  # never streamed in the held-out protocol
    training: Bool[np.ndarray, "*S N"]


def draw_parts(
    groups: Int[np.ndarray, " N"], validation: float, heldout: float, seed: int
) -> Masks:
    """Draws a validation part, and of the rest a held-out part, by question.

    Args:
      groups: the question of each query.
      validation: share of the questions, in (0, 1).
      heldout: share of the rest, in (0, 1).
      seed: of the draw.

    Returns:
      masks [N].
    """
    fractions = (validation, (1 - validation) * heldout, (1 - validation) * (1 - heldout))
    masks = []
    for positions in split_by_group(groups, fractions, seed):
        mask = np.zeros(len(groups), bool)
        mask[positions] = True
        masks.append(mask)
    return Masks(*masks)


def draw_parts_each(
    groups: Int[np.ndarray, " N"], validation: float, heldout: float, seeds: Sequence[int]
) -> Masks:
    """Draws parts anew for each seed, so that means over seeds are over splits too.

    Args:
      groups: as in `draw_parts`.
      validation: as in `draw_parts`.
      heldout: as in `draw_parts`.
      seeds: S numbers.

    Returns:
      masks [S, N].
    """
    each = [draw_parts(groups, validation, heldout, seed) for seed in seeds]
    return Masks(*map(np.stack, zip(*each, strict=True)))
