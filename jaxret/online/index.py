"""A live catalogue that learns: search, use what was found, say whether it worked.

    index = Index(greedy(), task)
    ticket = index.search("is the 8:40 to Basel late?", k=3)      ids and scores, best first
    index.feedback(ticket, worked=True)                          of the first; item= for another
    index.add(ids, texts); index.remove(ids); index.redescribe(ids, texts, how="carry")
    index.save(folder); index = Index.load(folder)

The first place of a ticket is the learner's own choice by its policy, the rest are the best by
score. A ticket is answered once, however late: the learner moves from where it is then. One
process, in memory; the catalogue may grow, and rows of tools that have gone stay where they were.

Letters: I items, d width, k items shown.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxret import encoders
from jaxret.data.templates import normalise
from jaxret.encoders import TextEncoder
from jaxret.online.learner import Learner
from jaxret.task import Task
from jaxret.types import Choice, Feedback, State
from jaxret.validate import require

How = Literal["keep", "reset", "carry"]
Vectors = ArrayLike | Sequence[str]


class Ticket(NamedTuple):
    """What a search found, and the number under which its feedback comes back."""

    number: int
    ids: list[str]  # k
    scores: list[float]
    propensities: list[float]  # of the first: to be chosen; of the rest: to stand on the list


class Open(NamedTuple):
    """A ticket that nobody has answered."""

    query: Float[np.ndarray, " d"]
    rows: list[int]
    propensities: list[float]


class Index:
    """A learner that serves.

    Args:
      learner: a preset or a rule of one's own.
      task: its catalogue and, where texts are searched, its encoder. Its queries are not read.
      seed: of the learner's draws.
    """

    def __init__(self, learner: Learner, task: Task, *, seed: int = 0):
        if not task.theta.shape[1]:
            raise ValueError(f"{task.name} has no vectors: load it with an encoder")
        here = np.ones(len(task.ids), bool) if task.available is None else task.available
        self.learner, self.encoder, self.seed = learner, task.encoder, seed
        self.ids: list[str] = list(task.ids)  # of each row
        self.documents = np.array(task.theta, np.float32)  # Theta_1: what each row began with
        self.state: State = learner.init(jnp.asarray(self.documents), jnp.asarray(here))
        self.tickets: dict[int, Open] = {}
        self.next_ticket = 0
        self._compile()

    def search(self, query: str | Float[ArrayLike, " d"], k: int = 1) -> Ticket:
        """Finds tools for a text or a vector.

        Args:
          query: a text, where the task has an encoder, or a vector [d].
          k: tools on the ticket; fewer where fewer are there.
        """
        require("k", k, ">= 1", lambda x: x >= 1)
        vector = self._vectors([query] if isinstance(query, str) else [np.asarray(query)], "query")
        key = jax.random.fold_in(jax.random.key(self.seed), self.next_ticket)
        found = jax.device_get(self._search(self.state, jnp.asarray(vector[0]), key))
        slate, scores, chances = found
        present = [row for row in np.argsort(-scores, kind="stable") if np.isfinite(scores[row])]
        if not present:
            raise ValueError("the catalogue is empty: add tools first")
        shown = list(dict.fromkeys(int(row) for row in slate.items))
        rows = [*shown, *(int(row) for row in present if row not in shown)][:k]
        told = [float(x) for x in slate.propensity[: len(shown)]]
        told = [*told, *(_on_the_list(row, present, chances, k) for row in rows[len(shown) :])][:k]
        number, self.next_ticket = self.next_ticket, self.next_ticket + 1
        self.tickets[number] = Open(vector[0], rows, told)
        ids = [self.ids[row] for row in rows]
        return Ticket(number, ids, [float(scores[row]) for row in rows], told)

    def feedback(self, ticket: Ticket, worked: float, item: str | None = None) -> None:
        """Learns from what came of a ticket.

        Args:
          ticket: from `search`; it is answered once.
          worked: whether the tool worked, or how well, in [0, 1].
          item: the id of the tool that was used; None: the first of the ticket.

        Raises:
          ValueError: for a number outside of [0, 1], an item that is not on the ticket, or a
            ticket that was answered before.
        """
        reward = float(worked)
        require("worked", reward, "in [0, 1]", lambda x: math.isfinite(x) and 0 <= x <= 1)
        if (open_ticket := self.tickets.get(ticket.number)) is None:
            raise ValueError(f"ticket {ticket.number} is not open: it was answered before")
        if item is not None and item not in ticket.ids:
            raise ValueError(f"item must be on the ticket, one of {ticket.ids}, got {item!r}")
        place = 0 if item is None else ticket.ids.index(item)
        del self.tickets[ticket.number]
        query, rows, propensities = open_ticket
        dtype = self.state.theta.dtype
        choice = Choice(
            jnp.asarray(rows[place], jnp.int32), jnp.asarray(propensities[place], dtype)
        )
        gone = self.ids[rows[place]] != ticket.ids[place] or not self._available[rows[place]]
        feedback = Feedback(jnp.asarray(reward, dtype), jnp.asarray(not gone))
        self.state = self._update(self.state, jnp.asarray(query), choice, feedback)

    def add(self, ids: Sequence[str], descriptions: Vectors) -> None:
        """Adds tools, at the end; one that was removed comes back with its new description.

        Args:
          ids: of the tools, none of which is there.
          descriptions: a text or a vector [d] for each.
        """
        rows = self._vectors(descriptions, "document", len(ids))
        known = {one: row for row, one in enumerate(self.ids)}
        if present := [one for one in ids if one in known and self._available[known[one]]]:
            raise ValueError(f"{present[0]!r} is there already: redescribe it, or take another id")
        if len(set(ids)) < len(ids):
            raise ValueError(f"ids must differ, got {list(ids)}")
        fresh = [one for one in ids if one not in known]
        self._grow(len(self.ids) + len(fresh))
        self.ids += fresh
        self._set([self.ids.index(one) for one in ids], rows, rows)

    def remove(self, ids: Sequence[str]) -> None:
        """Takes tools out; open tickets that name them teach nothing any more."""
        rows = self._rows(ids)
        available = self.state.available.at[jnp.asarray(rows)].set(False)
        self.state = self.state._replace(available=available)

    def redescribe(self, ids: Sequence[str], descriptions: Vectors, how: How = "carry") -> None:
        """Gives tools other descriptions.

        Args:
          ids: tools that are there.
          descriptions: a text or a vector [d] for each.
          how: what becomes of what was learnt: ``keep`` leaves the rows, ``reset`` begins anew at
            the description, ``carry`` adds what was learnt so far to it.
        """
        require("how", how, "keep, reset or carry", {"keep", "reset", "carry"}.__contains__)
        rows, new = self._rows(ids), self._vectors(descriptions, "document", len(ids))
        theta = np.asarray(self.state.theta)[rows]
        learnt = {"keep": theta, "reset": new, "carry": new + theta - self.documents[rows]}[how]
        self._set(rows, new, learnt)

    def save(self, folder: str | Path) -> None:
        """Writes everything, open tickets too; `Index.load` goes on from there."""
        from jaxret.online.index_files import save

        save(self, Path(folder))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        learner: Learner | None = None,
        encoder: TextEncoder | None = None,
    ) -> Self:
        """Reads an index.

        Args:
          folder: that `save` wrote.
          learner: needed for a rule of one's own; presets are known by their settings.
          encoder: in place of the one that is named there.
        """
        from jaxret.online.index_files import load

        index = cls.__new__(cls)
        for name, value in load(Path(folder), learner, encoder).items():
            setattr(index, name, value)
        index._compile()
        return index

    @property
    def _available(self) -> np.ndarray:
        return np.asarray(self.state.available)

    def _compile(self) -> None:
        learner = self.learner

        def search(state, query, key):
            slate = learner.act(state, query, key)
            scores = learner.scores(state, query[None])[0]
            chances = None if learner.chances is None else learner.chances(state, query)
            return slate, scores, chances

        self._search, self._update = jax.jit(search), jax.jit(learner.update)

    def _vectors(self, given: Any, kind: encoders.Kind, count: int = 1) -> np.ndarray:
        given = list(given)
        require(
            f"the number of {kind} texts or vectors", len(given), f"{count}", lambda n: n == count
        )
        if any(isinstance(one, str) for one in given):
            if self.encoder is None:
                raise ValueError("texts need an encoder: give vectors, or a task with an encoder")
            texts = [normalise(text) for text in given]
            return encoders.encode(self.encoder, texts, kind=kind, cache=None, progress=False)
        rows, width = np.asarray(given, np.float32), self.documents.shape[1]
        if rows.shape != (count, width) or not np.isfinite(rows).all():
            raise ValueError(f"a {kind} must be {width} finite numbers, got {list(rows.shape[1:])}")
        return rows

    def _rows(self, ids: Sequence[str]) -> list[int]:
        known = {one: row for row, one in enumerate(self.ids) if self._available[row]}
        if unknown := [one for one in ids if one not in known]:
            raise ValueError(
                f"no tool {unknown[0]!r}; there are {len(known):,}: {list(known)[:3]} .."
            )
        return [known[one] for one in ids]

    def _grow(self, needed: int) -> None:
        """Makes room: what is learnt keeps its place in arrays that have more rows."""
        have, width = self.documents.shape
        if needed <= have:
            return
        room = max(needed, have + have // 2)
        documents = np.zeros((room, width), np.float32)
        documents[:have] = self.documents
        larger = self.learner.init(jnp.asarray(documents), jnp.zeros(room, bool))

        def keep(old, new):
            corner = tuple(slice(0, n) for n in old.shape)
            return new.at[corner].set(old)

        self.state = jax.tree.map(keep, self.state, larger)
        self.documents = documents

    def _set(self, rows: list[int], documents: np.ndarray, theta: np.ndarray) -> None:
        """Rows of the catalogue, put where the learner's projection wants them."""
        where = jnp.asarray(rows)
        self.documents[rows] = documents
        whole = self.state.theta.at[where].set(jnp.asarray(theta, self.state.theta.dtype))
        start = self.learner.init(whole, self.state.available).theta
        self.state = self.state._replace(
            theta=self.state.theta.at[where].set(start[where]),
            available=self.state.available.at[where].set(True),
        )


def _on_the_list(row: int, ranked: list, chances: np.ndarray | None, k: int) -> float:
    """The probability that a tool stands on a list of k: chosen, or among the best of the rest."""
    if chances is None:
        return math.nan
    place = [int(one) for one in ranked].index(row)
    if place < k - 1:
        return 1.0
    before = chances[[int(one) for one in ranked[: k - 1]]].sum() if place == k - 1 else 0.0
    return float(min(1.0, chances[row] + before))
