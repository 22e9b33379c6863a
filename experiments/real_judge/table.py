"""A judge's verdict on every pair of query and tool, as a small file that grows.

Letters: N queries, I tools.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxret.runtime.files import existing

#: What is kept in the repository: no server is needed for what is learnt from it.
TABLE = Path(__file__).with_name("deskbank.npz")


class JudgeTable(NamedTuple):
    """Who was asked what, and the answers."""

    judge: dict[str, str]  # model, and the hash of the prompt
    tools: tuple[str, ...]  # ids
    queries: tuple[str, ...]  # ids
    yes: Float[np.ndarray, "N I"]  # probability of yes against no; NaN where nobody has asked

    @property
    def share(self) -> float:
        """Of the pairs that have been asked."""
        return float(np.isfinite(self.yes).mean())

    def save(self, path: Path) -> None:
        """Writes the file, whole or not at all; probabilities in steps of 2^-11 or less."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{os.getpid()}-{path.name}")
        with part.open("wb") as file:
            np.savez_compressed(
                file,
                allow_pickle=False,
                judge=json.dumps(self.judge),
                tools=np.array(self.tools),
                queries=np.array(self.queries),
                yes=self.yes.astype(np.float16),
            )
        os.replace(part, path)


def empty(judge: dict[str, str], tools: Sequence[str], queries: Sequence[str]) -> JudgeTable:
    """A table in which nothing has been asked."""
    unasked = np.full((len(queries), len(tools)), np.nan, np.float32)
    return JudgeTable(judge, tuple(tools), tuple(queries), unasked)


def load(path: Path = TABLE) -> JudgeTable:
    """Reads a table.

    Raises:
      FileNotFoundError: if nobody has asked anything yet.
      ValueError: if the file is damaged.
    """
    existing(path, "a judge's verdicts: python -m experiments.real_judge.ask writes them")
    try:
        with np.load(path) as file:
            return JudgeTable(
                judge=json.loads(str(file["judge"])),
                tools=tuple(file["tools"].tolist()),
                queries=tuple(file["queries"].tolist()),
                yes=file["yes"].astype(np.float32),
            )
    except (OSError, KeyError, ValueError, EOFError) as error:
        raise ValueError(f"{path} is no table of verdicts ({error})") from error
