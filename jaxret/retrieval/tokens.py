"""What retrievers that read words read: token numbers, padded to few lengths."""

from collections.abc import Callable, Sequence

import numpy as np

from jaxret.encoders import TextEncoder
from jaxret.encoders.padding import COARSE, pad


def reader(
    encoder: TextEncoder, limit: int | None
) -> Callable[[Sequence[str]], dict[str, np.ndarray]]:
    """Queries -> ``ids [B, L]`` and ``mask [B, L]``, each cut to ``limit`` tokens."""

    def read(texts):
        ids, mask = pad(encoder.tokens(texts, kind="query", limit=limit), COARSE)
        return {"ids": ids, "mask": mask}

    return read
