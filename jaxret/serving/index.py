"""A live index: search, use a tool, and report whether it worked, from which the learner learns.

    index = Index(greedy(), task)
    ticket = index.search("is the 8:40 to Basel late?", k=3)      ids and scores, best first
    index.feedback(ticket, worked=True)                          on the first; item= for another
    index.search(.., at_least=0.5)               no tools where none is likely enough to work
    index.add(ids, texts); index.remove(ids); index.redescribe(ids, texts, how="carry")
    index.save(folder); index = Index.load(folder)
    Index(greedy(), task, log="log.jsonl")                       logs searches and feedback

The first position of a ticket is chosen by the learner's policy, the rest are the best by score. A
ticket is answered once, at any later time: the update is applied to the state at that time. The
index is in memory and used by one process; the catalogue may grow, and the rows of removed tools
are kept.

Letters: I items, d width, k items shown.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from jaxret import logs
from jaxret.encoders import Encoder
from jaxret.learners.confidence import confidence, is_calibrated, require_calibrated
from jaxret.learners.learner import Learner, query_for
from jaxret.learners.rank_one import position_probabilities
from jaxret.logs import LogWriter
from jaxret.runtime.validate import require
from jaxret.serving import files
from jaxret.serving.catalogue import LiveCatalogue
from jaxret.serving.files import Open, Stored
from jaxret.task import Task
from jaxret.types import Choice, Feedback, Query


class Ticket(NamedTuple):
    """The result of a search, to be answered by feedback.

    Attributes:
      number: number of the ticket.
      ids: k tools, the learner's choice first.
      scores: scores of the tools.
      propensities: probability that the first tool is chosen, and each other one on the ticket.
      confidence: probability that the first tool works, calibrated by the feedback so far; None for
        a learner that does not predict it (`jaxret.learners.confidence`). An empty ticket has that
        of the tool that was withheld.
    """

    number: int
    ids: list[str]
    scores: list[float]
    propensities: list[float]
    confidence: float | None = None


class Index(LiveCatalogue):
    """A learner that serves searches and learns from their feedback.

    Args:
      learner: a preset, or any learner that learns from rewards.
      task: task with the catalogue and, for texts, the encoder; its queries are ignored.
      seed: seed of the learner's draws.
      log: file to which searches and feedback are appended (`jaxret.logs`), with queries as
        vectors; the positions after the learner's choice are deterministic and get probability 1.

    Raises:
      ValueError: if the learner is an oracle, the task has no vectors, or the log has another
        learner.
    """

    def __init__(
        self, learner: Learner, task: Task, *, seed: int = 0, log: str | Path | None = None
    ):
        if learner.facts.oracle:
            raise ValueError(f"{learner.name!r} is an oracle: live use has no labels for it")
        super().__init__(learner, task)
        self.seed = seed
        self.tickets: dict[int, Open] = {}
        self.next_ticket = 0
        self._begin(log)

    def search(
        self,
        query: str | Float[ArrayLike, " d"],
        k: int = 1,
        prior: Mapping[str, float] | None = None,
        at_least: float | None = None,
    ) -> Ticket:
        """Find tools for a text or a vector.

        Args:
          query: a text, if the task has an encoder, or a vector [d].
          k: tools on the ticket; fewer if fewer are available.
          prior: score of each tool id, for a learner that reads prior scores; tools left out have
            0. None: the match of the words of a text.
          at_least: smallest confidence in [0, 1] with which tools are returned; below it the ticket
            is empty and closed, and is not logged. None: tools are always returned.

        Raises:
          ValueError: if the width of the query differs, k is below the learner's slate, prior
            scores are missing, or ``at_least`` is given and the learner has no confidence.
        """
        require("k", k, ">= 1", lambda x: x >= 1)
        if at_least is not None:
            require("at_least", at_least, "in [0, 1]", lambda x: 0 <= x <= 1)
            require_calibrated(self.learner)
        vector = self._encode([query], "query")[0]
        if not self._available.any():
            raise ValueError("the catalogue is empty: add tools first")
        key = jax.random.fold_in(jax.random.key(self.seed), self.next_ticket)
        asked = query_for(self.learner, vector, self._prior(query, prior))
        answer = jax.device_get(self._search(self.state, jax.tree.map(jnp.asarray, asked), key))
        (items, propensity), scores, p, by_position, sure = answer
        sure = None if sure is None else float(sure)
        if sure is not None and sure < (at_least or 0.0):
            self.next_ticket += 1
            return Ticket(self.next_ticket - 1, [], [], [], sure)
        own = {int(row): float(x) for row, x in reversed([*zip(items, propensity, strict=True)])}
        own = {
            row: own[row] for row in dict.fromkeys(items.tolist())
        }  # short slates repeat an item
        if k < len(own):
            raise ValueError(f"{self.learner.name!r} shows {len(own)} tools: k must be as many")
        ranked = np.argsort(-scores, kind="stable")[: int(self._available.sum())]
        rest = [int(row) for row in ranked if row not in own][: k - len(own)]
        listed = {row: _on_ticket(row, ranked, p, k) for row in rest}
        rows, propensities = [*own, *rest], [*own.values(), *listed.values()]
        ids, number = [self.names[row] for row in rows], self.next_ticket
        if self.log is not None:
            positions = [*by_position[: len(own)].tolist(), *(1.0 for _ in rest)]
            line = logs.shown(number, vector, ids, positions, int(self.state.t), sure)
            self.log.append([line | self._logged_prior(asked)])
        self.next_ticket = number + 1
        self.tickets[number] = Open(asked, rows, propensities)
        return Ticket(number, ids, [float(scores[row]) for row in rows], propensities, sure)

    def feedback(self, ticket: Ticket, worked: float, item: str | None = None) -> None:
        """Learn from the outcome of a ticket; refused feedback leaves the ticket open.

        Args:
          ticket: ticket from `search`, not answered yet. Feedback on a removed tool is ignored.
          worked: reward in [0, 1]: whether, or how well, the tool worked.
          item: id of the tool that was used; None: the first of the ticket.

        Raises:
          ValueError: if the reward is outside [0, 1], the item is not on the ticket, the ticket was
            answered before, is empty or is of another index, or a probability is unknown.
        """
        reward = float(worked)
        require("worked", reward, "in [0, 1]", lambda x: 0 <= x <= 1)
        if not ticket.ids:
            raise ValueError(
                f"ticket {ticket.number} is empty: no tool was used, none can be judged"
            )
        if (answered := self.tickets.get(ticket.number)) is None:
            raise ValueError(f"ticket {ticket.number} is not open: it was answered before")
        query, rows, propensities = answered
        if [self.names[row] for row in rows] != list(ticket.ids):
            raise ValueError(f"ticket {ticket.number} comes from another index")
        if item is not None and item not in ticket.ids:
            raise ValueError(f"item must be on the ticket, one of {ticket.ids}, got {item!r}")
        position = 0 if item is None else ticket.ids.index(item)
        dtype = self.starts.dtype
        choice = Choice(
            jnp.asarray(rows[position], jnp.int32), jnp.asarray(propensities[position], dtype)
        )
        feedback = Feedback(jnp.asarray(reward, dtype), self.state.available[rows[position]])
        new = self._update(self.state, jax.tree.map(jnp.asarray, query), choice, feedback)
        if math.isnan(propensities[position]) and _has_nan(new):
            raise ValueError(
                f"{self.learner.name!r} needs the probability of {ticket.ids[position]!r}, which "
                "it does not know: give feedback on its own choice, the first of the ticket"
            )
        if self.log is not None:
            used = ticket.ids[position], propensities[position]
            self.log.append([logs.answered(ticket.number, *used, reward)])
        self.state = new
        del self.tickets[ticket.number]

    def save(self, folder: str | Path) -> None:
        """Save the index and its open tickets, for `Index.load`.

        Args:
          folder: folder to write; an existing index in it is replaced.
        """
        stored = Stored(
            learner=self.learner,
            encoder=self.encoder,
            state=self.state,
            names=self.names,
            starts=self.starts,
            texts=self.texts,
            tickets=self.tickets,
            next_ticket=self.next_ticket,
            seed=self.seed,
            log=None if self.log is None else self.log.path,
        )
        files.save(stored, Path(folder))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        learner: Learner | None = None,
        encoder: Encoder | None = None,
        log: str | Path | None = None,
    ) -> Self:
        """Read an index that `save` wrote.

        Args:
          folder: folder that `save` wrote.
          learner: learner of the index, required unless a preset made it.
          encoder: encoder to use, required if the index was made with a callable; None: the encoder
            that the index names.
          log: log to write; None: continues the index's log, or starts a new one if it is missing.

        Raises:
          FileNotFoundError: if there is no index.
          ValueError: if the index is damaged, its learner is unknown or not ``learner``, or its
            encoder was a callable and is not given.
        """
        index = cls.__new__(cls)
        stored = files.load(Path(folder), learner, encoder)
        for name, value in stored._asdict().items():
            setattr(index, name, value)
        index._begin(log or stored.log)
        return index

    def __repr__(self) -> str:
        return (
            f"<index of {self.learner.name}: {len(self):,} tools, {int(self.state.t):,} answers, "
            f"{len(self.tickets):,} open tickets>"
        )

    def _logged_prior(self, query: Any) -> dict[str, Any]:
        """Return the prior scores of a query for its line in the log."""
        if not isinstance(query, Query):
            return {}
        pairs = zip(*map(np.asarray, query.prior), strict=True)
        return {"prior": {self.names[row]: float(x) for row, x in pairs if row >= 0}}

    def _begin(self, log: str | Path | None) -> None:
        self.log = None if log is None else LogWriter(log, {"learner": self.learner.name})
        learner: Any = self.learner
        self._lexicon = None
        self._search, self._update = _search_of(learner), jax.jit(learner.update)


@lru_cache(maxsize=32)  # indices of one learner share their programs
def _search_of(learner: Learner) -> Callable[..., Any]:
    @jax.jit
    def search(state, query, key):
        slate = learner.act(state, query, key)
        scores = learner.scores(state, jax.tree.map(lambda x: x[None], query))[0]
        p = None if learner.probabilities is None else learner.probabilities(state, query)
        works = confidence(learner, state, query) if is_calibrated(learner) else None
        sure = None if works is None else works[slate.items[0]]
        return slate, scores, p, position_probabilities(learner, state, query, slate), sure

    return search


def _has_nan(tree: Any) -> bool:
    return any(np.isnan(np.asarray(leaf, np.float64)).any() for leaf in jax.tree.leaves(tree))


def _on_ticket(
    row: int, ranked: Int[np.ndarray, " I"], p: Float[np.ndarray, " I"] | None, k: int
) -> float:
    """Compute the probability that each tool is on a ticket of k: chosen, or best of the rest.

    The probabilities are NaN if the learner does not know the probability of each item.
    """
    if p is None:
        return math.nan
    above = ranked[: k - 1]  # on the ticket for every choice
    if row in above:
        return 1.0
    return float(min(1.0, p[row] + p[above].sum()))
