"""A live catalogue: tools are added, removed and redescribed while a learner keeps its state.

    index = Index.from_tools("tools.json")      any list of tools (`jaxret.tools.read`)
    index.sync("tools.json")                    adds new tools and redescribes changed ones

The state has a row for each tool that was ever added, and spare rows: a removed tool is marked
absent, and its row is kept. Growing copies the whole state, bit for bit.

Letters: I rows, d width.
"""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool

from jaxret import encoders
from jaxret.data.dataset import build
from jaxret.data.templates import normalise
from jaxret.encoders import Encoder
from jaxret.encoders.lexical import Lexicon
from jaxret.environments.interventions import How
from jaxret.learners.learner import Learner, require_learner
from jaxret.learners.mixture import mixture
from jaxret.runtime import interrupts
from jaxret.runtime.validate import require, require_different
from jaxret.serving.program import describe_of, enlarged, initial_rows_of, start_of
from jaxret.task import Task, encoded
from jaxret.tools import describe, read
from jaxret.tools.tool import document
from jaxret.types import Prior, State

Descriptions: TypeAlias = ArrayLike | Sequence[str]  # a vector [d] or a text for each tool


class Synced(NamedTuple):
    """Result of `LiveCatalogue.sync`.

    Attributes:
      added: ids of the tools that are new, or came back.
      redescribed: ids of the tools whose text changed.
      unchanged: ids of the listed tools that are as before.
    """

    added: list[str]
    redescribed: list[str]
    unchanged: list[str]


class LiveCatalogue:
    """A learner's state, and the tools of its rows.

    Args:
      learner: learner of the state.
      task: task with the catalogue and, for texts, the encoder; its queries are ignored.

    Raises:
      ValueError: if the task has no vectors.
    """

    def __init__(self, learner: Learner, task: Task):
        task.require_vectors()
        available = np.ones(len(task.ids), bool) if task.available is None else task.available
        self.learner, self.encoder = learner, task.encoder
        self.names: list[str] = list(task.ids)  # tool of each row, including removed tools
        self.state = start_of(learner)(task.theta, available)
        self.starts = np.array(self._state.theta)  # initial value of each row
        words = task.documents if task.lexical else None
        self.texts = list(words or [""] * len(task.ids))  # "": no words are matched
        self._prepare()

    def _prepare(self) -> None:
        """Make what is not saved: the lock, and what is computed from names and texts."""
        self._lock = threading.RLock()  # of all that changes
        self._lexicon: Lexicon | None = None
        self._known: dict[str, int] = {}

    def _record(self, line: Mapping[str, Any]) -> None:
        """Log a change before it is made, as `_change` reads it; this class has no log."""

    @classmethod
    def from_tools(
        cls,
        tools: Any,
        learner: Learner | None = None,
        encoder: str | Encoder = "minilm",
        *,
        cache: str | Path | None = None,
        **options: Any,
    ) -> Self:
        """Start from a list of tools, without queries or labels.

        Args:
          tools: what `jaxret.tools.read` reads: a file or its content, of MCP, OpenAI, Anthropic,
            OpenAPI or a table; or the tools that it returned.
          learner: a preset, or any learner that learns from rewards; None: `jaxret.mixture`.
          encoder: a name (`jaxret.encoders.ENCODERS`), an encoder from `load_encoder`, or any
            callable ``list[str] -> [n, d]``, which `load` then asks for by its name.
          cache: folder of encoded texts; None: ``$JAXRET_CACHE`` or ``~/.cache/jaxret``.
          **options: further arguments of the class, such as ``seed`` and ``log``.

        Raises:
          ValueError: if there are no tools, one of them cannot be read, or the encoder is unknown.
          FileNotFoundError: if the file or the encoder's weights are missing.
        """
        dataset = build("tools", ((tool.id, document(tool)) for tool in read(tools)), None)
        learner = mixture() if learner is None else learner
        require_learner(learner)  # before the texts are encoded
        return cls(learner, encoded(dataset, encoder, cache=cache), **options)

    @property
    def state(self) -> State:
        """A copy of the learner's state: feedback overwrites the arrays of the index."""
        with self._lock:
            return jax.tree.map(jnp.array, self._state)

    @state.setter
    def state(self, state: State) -> None:
        self._state = jax.tree.map(jnp.array, state)  # copies: none is shared or occurs twice

    @property
    def ids(self) -> list[str]:
        """Ids of the available tools."""
        with self._lock:
            pairs = zip(self.names, self._available, strict=False)
            return [name for name, available in pairs if available]

    def sync(self, tools: Any, how: How = "carry") -> Synced:
        """Add the tools of a list that are new, and redescribe those whose text changed.

        Tools that are not in the list stay, since a list may have only the tools of one user:
        `remove` removes them. A tool with a category is also recognised by ``category.name``. Texts
        are compared with those of the index; a tool described by a vector is redescribed. Call it
        from one thread: other calls may come between its changes.

        Args:
          tools: what `jaxret.tools.read` reads, or the tools that it returned.
          how: ``keep``, ``reset`` or ``carry``, as in `redescribe`.

        Returns:
          The ids that were added, redescribed and left unchanged.

        Raises:
          ValueError: if there are no tools, or one of them cannot be read.
        """
        listed = read(tools)
        with self._lock:
            known = set(self.names)
            rows = zip(self.names, self.texts, self._available, strict=False)
            before = {name: text for name, text, available in rows if available}
        texts = {}
        for tool in listed:
            prefixed = f"{tool.category}.{tool.name}"
            name = prefixed if tool.id not in known and prefixed in known else tool.id
            texts[name] = normalise(describe(tool).text)
        added = [name for name in texts if name not in before]
        changed = [name for name in texts if before.get(name, texts[name]) != texts[name]]
        if added:
            self.add(added, [texts[name] for name in added])
        if changed:
            self.redescribe(changed, [texts[name] for name in changed], how)
        done = {*added, *changed}
        return Synced(added, changed, [name for name in texts if name not in done])

    def add(self, ids: Sequence[str], descriptions: Descriptions, *, reset: bool = False) -> None:
        """Add tools at the end; a removed tool is restored.

        A tool that returns with its old description keeps its learnt row; others start anew.

        Args:
          ids: ids of the tools, none of which is available.
          descriptions: a text or a vector [d] for each tool.
          reset: whether tools that return with their old description also start from it.

        Raises:
          ValueError: if an id is blank or no string, is available already, or occurs twice.
        """
        ids = _listed(ids)
        if wrong := [one for one in ids if not isinstance(one, str) or not one.strip()]:
            raise ValueError(f"an id must be a string that is not blank, got {wrong[0]!r}")
        rows = self._encode(descriptions, "document", len(ids), names=ids)
        texts = _texts(descriptions)
        require_different("ids", ids)
        with self._lock:
            known, available = self._row_of, self._available
            if present := [one for one in ids if one in known and available[known[one]]]:
                raise ValueError(f"{present[0]!r} exists already: redescribe it, or use another id")
            self._apply({"add": ids, "vectors": rows, "texts": texts, "reset": bool(reset)})

    def remove(self, ids: Sequence[str]) -> None:
        """Remove tools; later feedback on these tools is ignored.

        Args:
          ids: ids of available tools.

        Raises:
          ValueError: if a tool is not available.
        """
        with self._lock:
            self._rows(ids)
            self._apply({"remove": list(ids)})

    def redescribe(
        self, ids: Sequence[str], descriptions: Descriptions, how: How = "carry"
    ) -> None:
        """Replace the descriptions of tools.

        Args:
          ids: ids of available tools.
          descriptions: a text or a vector [d] for each tool.
          how: ``keep`` does not change the rows, ``reset`` starts from the new description,
            ``carry`` adds the learnt change of the row to the new description.

        Raises:
          ValueError: if a tool is not available or occurs twice, or ``how`` is unknown.
        """
        require("how", how, "keep, reset or carry", lambda x: x in ("keep", "reset", "carry"))
        ids = _listed(ids)
        rows = self._encode(descriptions, "document", len(ids), names=ids)
        texts = _texts(descriptions)
        require_different("ids", ids)
        with self._lock:
            self._rows(ids)
            self._apply({"redescribe": ids, "vectors": rows, "texts": texts, "how": how})

    def _apply(self, line: Mapping[str, Any]) -> None:
        with interrupts.held():
            self._record(line)
            self._change(line)

    def _change(self, line: Mapping[str, Any]) -> None:
        """Apply a change to the catalogue, from a call or from the journal.

        Args:
          line: ids under ``add``, ``remove`` or ``redescribe``; for the first and the last also the
            ``vectors`` and ``texts``, for the first ``reset``, and for the last ``how``.
        """
        self._lexicon = None  # depends on the available tools
        if "remove" in line:
            rows = self._rows(line["remove"])
            available = self._available
            available[rows] = False
            self._state = self._state._replace(available=jnp.asarray(available))
            return
        vectors = np.asarray(line["vectors"], np.float32)
        if "add" in line:
            rows = self._restore(line["add"], vectors, line["texts"], line["reset"])
        else:
            rows = self._rows(line["redescribe"])
            self._describe(rows, vectors, line["how"])
        for row, text in zip(rows, line["texts"], strict=True):
            self.texts[row] = text

    def _restore(
        self, ids: list[str], vectors: np.ndarray, texts: list[str], reset: bool
    ) -> list[int]:
        """Add tools; those that come back with their description keep their rows."""
        known = set(self._row_of)
        new = [one for one in ids if one not in known]
        self._grow(len(self.names) + len(new))
        self.names += new
        self.texts += [""] * len(new)
        rows = [self._row_of[one] for one in ids]
        kept = np.array([not reset and one in known for one in ids])
        kept &= self._as_before(rows, vectors, texts)
        for how, chosen in (("keep", kept), ("reset", ~kept)):
            if chosen.any():
                self._describe(list(np.array(rows)[chosen]), vectors[chosen], how)
        return rows

    def __len__(self) -> int:
        return int(self._available.sum())

    @property
    def _available(self) -> np.ndarray:
        with self._lock:
            return np.array(self._state.available)

    def _encode(
        self,
        given: Any,
        kind: encoders.Kind,
        count: int = 1,
        *,
        names: Sequence[str] | None = None,
    ) -> np.ndarray:
        """Convert texts or vectors to rows [count, d]; warn of texts that are cut, by names."""
        given = _listed(given)
        require(f"the number of {kind} vectors", len(given), f"{count}", lambda n: n == count)
        if any(isinstance(one, str) for one in given):
            if self.encoder is None:
                raise ValueError("texts need an encoder: give vectors, or a task with an encoder")
            texts = [normalise(one) if isinstance(one, str) else one for one in given]
            rows = [
                *encoders.encode(
                    self.encoder, texts, kind=kind, cache=None, progress=False, names=names
                )
            ]
        else:
            rows = [np.asarray(one, np.float32) for one in given]
        width = self.starts.shape[1]
        for row in rows:
            if row.shape != (width,) or not np.isfinite(row).all():
                shape = list(row.shape)
                raise ValueError(f"a {kind} must be {width} finite numbers, got the shape {shape}")
        return np.stack(rows)

    def _as_before(self, rows: list[int], vectors: np.ndarray, texts: list[str]) -> np.ndarray:
        """Return whether the rows had these descriptions [n], by text or else by vector."""
        starts = initial_rows_of(self.learner)(self._state, np.array(rows), vectors)
        same = [
            bool(text) and text == self.texts[row] for row, text in zip(rows, texts, strict=True)
        ]
        return np.isclose(starts, self.starts[rows], atol=1e-6).all(axis=1) | np.array(same)

    def _prior(
        self,
        query: Any,
        given: Mapping[str, float] | None,
        allowed: Bool[np.ndarray, " I"] | None = None,
    ) -> Prior | None:
        """Return the prior scores of a query, fields [K]; None if the learner reads none.

        Args:
          query: a text, whose words are matched with the tools' texts; or a vector.
          given: id -> score, in place of the match of words; None: the match of words.
          allowed: mask of the tools whose words are matched [I]; None: all that are available.
        """
        if not (width := self.learner.facts.prior_width):
            reads = f"None for {self.learner.name!r}, which reads no prior scores"
            require("prior", given, reads, lambda x: x is None)
            return None
        items, scores = np.zeros((2, 1, 0))
        if given is not None:
            require("prior", given, "a mapping from ids to numbers", _is_scores)
            require("prior", len(given), f"at most {width} scores", lambda n: n <= width)
            with np.errstate(over="ignore"):  # too large for float32 becomes infinite
                scores = np.array([[*given.values()]], np.float32)
            require("prior", given, "finite numbers", lambda _: np.isfinite(scores).all())
            items = np.array([self._rows([*given]) if given else []])
        elif isinstance(query, str) and (self._lexicon is not None or any(self.texts)):
            rows = np.flatnonzero(self._available)
            if self._lexicon is None:
                self._lexicon = Lexicon([self.texts[row] for row in rows])
            among = None if allowed is None else allowed[rows]
            items, scores = self._lexicon.prior([normalise(query)], width=width, among=among)
            items = np.where(items < 0, -1, rows[items])
        elif self.learner.facts.prior_required:
            raise ValueError(
                f"{self.learner.name!r} reads prior scores, which this query lacks: give prior=, "
                "or search by text where the tools have texts"
            )
        missing = ((0, 0), (0, width - items.shape[1]))
        items = np.pad(items.astype(np.int32), missing, constant_values=-1)
        return Prior._make((items[0], np.pad(scores.astype(np.float32), missing)[0]))

    @property
    def _row_of(self) -> dict[str, int]:
        """Row of each tool that was ever added."""
        for row in range(len(self._known), len(self.names)):
            self._known[self.names[row]] = row
        return self._known

    def _rows(self, ids: Sequence[str]) -> list[int]:
        """Return the rows of available tools.

        Raises:
          ValueError: if a tool is not available.
        """
        known, available = self._row_of, self._available
        rows = [known.get(one, -1) for one in _listed(ids)]
        for one, row in zip(ids, rows, strict=True):
            if row < 0 or not available[row]:
                there = self.ids
                raise ValueError(f"no tool {one!r}; there are {len(there):,}: {there[:3]} ..")
        return rows

    def _grow(self, needed: int) -> None:
        """Copy the state into arrays with more rows."""
        have, width = self.starts.shape
        if needed <= have:
            return
        room = max(needed, have + have // 2)
        starts = np.zeros((room, width), self.starts.dtype)
        starts[:have] = self.starts
        larger = start_of(self.learner)(starts, np.zeros(room, bool))
        self.state, self.starts = enlarged(self._state, larger), starts

    def _describe(self, rows: list[int], descriptions: np.ndarray, how: How) -> None:
        """Change the initial rows, projected by the learner, and the current rows."""
        change = describe_of(self.learner)
        state, starts = change(self._state, np.array(rows), descriptions, self.starts[rows], how)
        self.starts[rows] = starts
        self.state = state


def _is_scores(given: Any) -> bool:
    numbers = int | float | np.number
    return isinstance(given, Mapping) and all(isinstance(x, numbers) for x in given.values())


def _texts(descriptions: Descriptions) -> list[str]:
    """Return the texts whose words are matched, "" for vectors."""
    return [normalise(one) if isinstance(one, str) else "" for one in _listed(descriptions)]


def _listed(values: Any) -> list:
    """Return a nonempty list; refuse a single string, which would become a list of letters."""
    if isinstance(values, str) or not len(values):
        raise ValueError(f"a list of one or more is needed, got {values!r}")
    return list(values)
