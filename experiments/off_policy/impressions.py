"""Logs of the Open Bandit Dataset: the item shown at each position of a page, and its clicks.

From github.com/st-tech/zr-obp, ``obd/{random,bts}/{men,women}`` (Saito, Aihara, Matsutani and
Narita 2021, arXiv 2008.07146; CC BY 4.0), here as ``{random,bts}_{men,women}.csv`` in one folder. A
fashion shop showed items at three places of a page, at random or by Bernoulli Thompson sampling;
each impression is a round. There are no texts and so no task; the query is the place, and features
of users are not used.

Letters: T rounds, I items, P places.
"""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxret.logs import Log
from jaxret.runtime.files import existing

POLICIES = ("random", "bts")
FIELDS = ("item_id", "position", "click", "propensity_score")


class Impressions(NamedTuple):
    """A log, and the place of each round."""

    log: Log  # the query is the position as a unit vector [P]
    place: Int[np.ndarray, " T"]  # position, from 0
    items: int  # I

    @property
    def frequencies(self) -> Float[np.ndarray, "P I"]:
        """Computes how often each item was shown at each place, an estimate of the policy.

        Returns:
          [P, I], rows of sum 1.
        """
        counts = np.zeros((self.log.query.shape[1], self.items))
        np.add.at(counts, (self.place, self.log.item), 1)
        return counts / counts.sum(axis=1, keepdims=True)


def load(folder: str | Path, policy: str, campaign: str) -> Impressions:
    """Reads a log; for the random policy with the probabilities of all items.

    Args:
      folder: folder with the files.
      policy: ``random`` or ``bts``.
      campaign: ``men`` or ``women``.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if a file lacks a field or is empty, or the random policy is not uniform.
    """
    path = existing(Path(folder) / f"{policy}_{campaign}.csv", "a log of the Open Bandit Dataset")
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if missing := [name for name in FIELDS if name not in (reader.fieldnames or ())]:
            raise ValueError(f"{path} lacks the columns {missing}; expected {', '.join(FIELDS)}")
        rows = [[float(row[name]) for name in FIELDS] for row in reader]
    if not rows:
        raise ValueError(f"{path} has no impressions")
    item, place, click, propensity = np.array(rows).T
    item, place = item.astype(int), place.astype(int) - 1
    rounds, items = len(item), int(item.max()) + 1
    probabilities = None
    if policy == "random":
        if not np.allclose(propensity, 1 / items):
            raise ValueError(f"{path} is not uniform over its {items} items")
        probabilities = np.full((rounds, items), 1 / items)
    log = Log(
        query=np.eye(place.max() + 1, dtype=np.float32)[place],
        slate=item[:, None],
        by_position=propensity[:, None],
        item=item,
        propensity=propensity,
        reward=click,
        version=np.full(rounds, -1),
        round=np.arange(rounds),
        probabilities=probabilities,
    )
    return Impressions(log, place, items)
