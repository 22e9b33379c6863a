"""A task: tools as rows, queries as vectors, and which tool is right for which query.

    task = load_task("deskbank", encoder="minilm", document="full")     texts, encoded
    task = Task.from_arrays(theta, queries, labels)                     vectors of one's own
    train, test = task.split((0.8, 0.2), seed=0)                        no question on two sides

Everything that learns, ranks or measures takes one of these. Arrays are NumPy's, on the host; a
part of a task shares the catalogue with the whole.

Letters: I items (tools), d width, N queries, L labels a query (padded with -1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from jaxret import data, encoders
from jaxret.data import split as own
from jaxret.data.dataset import Dataset, Document, select, split_by_group
from jaxret.data.hops import as_hops
from jaxret.data.templates import normalise, template
from jaxret.encoders import Encoder
from jaxret.runtime.validate import (
    label_rows,
    matrix_of,
    require,
    require_different,
    require_labels,
    require_length,
    require_task,
)


def _in_order_of_appearance(values: np.ndarray) -> Int[np.ndarray, " N"]:
    """Numbers the different values (or rows) from 0, as a data set's questions are numbered."""
    _, first, number = np.unique(values, axis=0, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number.reshape(-1)].astype(np.int32)


class Parts(NamedTuple):
    """Parts of a task's queries, as masks with one row per seed; no question is in two parts.

    Attributes:
      training: streamed before the held-out queries are ranked [S, N].
      validation: chooses settings [S, N].
      heldout: never streamed in the held-out protocol [S, N].
    """

    training: Bool[np.ndarray, "S N"]
    validation: Bool[np.ndarray, "S N"]
    heldout: Bool[np.ndarray, "S N"]

    @property
    def streamed(self) -> Bool[np.ndarray, "S N"]:
        """All queries but those that choose settings [S, N]."""
        return ~self.validation


class Split(NamedTuple):
    """What is fitted, what chooses settings, what is reported."""

    train: "Task"
    validation: "Task"
    test: "Task"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Task:
    """A catalogue and its queries. Made by `load_task` or `Task.from_arrays`."""

    name: str
    ids: tuple[str, ...]  # I
    theta: Float[np.ndarray, "I d"]  # Theta_1: the rows before anything is learnt
    queries: Float[np.ndarray, "N d"]
    labels: Int[np.ndarray, "N L"]  # positions in ids, -1 pads
    groups: Int[np.ndarray, " N"]  # equal for queries of one question
    query_ids: tuple[str, ...]  # N
    available: Bool[np.ndarray, " I"] | None = None  # None: every tool is there
    documents: tuple[str, ...] | None = None  # I, as they were encoded
    texts: tuple[str, ...] | None = None  # N, as they were encoded
    encoder: Encoder | None = None  # whose vectors these are
    document: str | None = None  # the template that made the documents; None: no template
    dataset: Dataset | None = field(default=None)  # the source, where there is one

    @classmethod
    def from_arrays(
        cls,
        theta: Float[ArrayLike, "I d"],
        queries: Float[ArrayLike, "N d"],
        labels: ArrayLike | Sequence[int] | Sequence[Sequence[int]],
        *,
        ids: Sequence[str] | None = None,
        groups: ArrayLike | Sequence[int] | Sequence[str] | None = None,
        available: ArrayLike | Sequence[bool] | None = None,
        texts: Sequence[str] | None = None,
        documents: Sequence[str] | None = None,
        name: str = "arrays",
    ) -> Self:
        """Makes a task from vectors.

        Args:
          theta: the tools' embeddings [I, d], finite.
          queries: [N, d], finite.
          labels: the right tool of each query [N], as its row in ``theta``; or several, [N, L]
            padded with -1; or lists.
          ids: of the tools, all different; None numbers them.
          groups: [N], equal for queries of one question, so that a split keeps them together;
            None: queries with the same vector are one question.
          available: [I], which tools are there; None: all of them.
          texts: of the queries [N], for methods and rerankers that read words.
          documents: texts of the tools [I], for the same.
          name: shown in tables.

        Raises:
          ValueError: for shapes that do not go together, NaN, labels outside of -1 .. I - 1, a
            query without a label or with one twice, an id that comes twice, or a text that is
            missing or blank.
        """
        theta, queries = matrix_of("theta", theta), matrix_of("queries", queries)
        labels = label_rows(labels)
        require_task(theta, queries, labels)
        require_labels(labels, len(theta))
        ids = tuple(map(str, range(len(theta)) if ids is None else ids))
        require_length("ids", ids, len(theta))
        require_different("ids", ids)
        groups = queries if groups is None else np.asarray(groups)
        require_length("groups", groups, len(queries))
        if available is not None:
            available = np.asarray(available, bool)
            require_length("available", available, len(theta))
            require("available", available, "True for one tool or more", np.any)
        return cls(
            name=name,
            ids=ids,
            theta=theta,
            queries=queries,
            labels=labels.astype(np.int32),
            groups=_in_order_of_appearance(groups),
            query_ids=tuple(map(str, range(len(queries)))),
            available=available,
            texts=_words("texts", texts, len(queries)),
            documents=_words("documents", documents, len(theta)),
        )

    @cached_property
    def repeated(self) -> int:
        """How many queries are an earlier one again: by their text, or else by their vector."""
        if self.texts is not None:
            return len(self.texts) - len(set(self.texts))
        return len(self.queries) - len(np.unique(self.queries, axis=0))

    def select(self, rows: ArrayLike | Sequence[int] | Sequence[bool]) -> Self:
        """Keeps some queries and the whole catalogue.

        Args:
          rows: positions [M], or a mask [N].
        """
        rows = np.asarray(rows)
        chosen = np.arange(len(self))[rows if rows.size else rows.astype(np.int32)]

        def pick(values):
            return None if values is None else tuple(values[row] for row in chosen)

        return replace(
            self,
            queries=self.queries[chosen],
            labels=self.labels[chosen],
            groups=self.groups[chosen],
            query_ids=tuple(self.query_ids[row] for row in chosen),
            texts=pick(self.texts),
            dataset=None if self.dataset is None else select(self.dataset, chosen),
        )

    def with_theta(self, theta: Float[ArrayLike, "I d"]) -> Self:
        """Starts from other rows for the same tools: a warm start, such as Tool2Vec.

        Args:
          theta: [I, d], finite.

        Raises:
          ValueError: for another shape, or a row that is not finite.
        """
        rows = np.asarray(theta, np.float32)
        if rows.shape != self.theta.shape:
            raise ValueError(f"theta must be {list(self.theta.shape)}, got {list(rows.shape)}")
        require_task(rows, self.queries, self.labels)
        return replace(self, theta=rows)

    def split(self, shares: tuple[float, ...], seed: int = 0) -> tuple[Self, ...]:
        """Cuts the queries by question.

        Args:
          shares: of the queries in each part, positive, with sum 1.
          seed: of the cut.
        """
        return tuple(self.select(rows) for rows in split_by_group(self.groups, shares, seed))

    def parts(
        self,
        *,
        validation: float = 0.1,
        heldout: float = 0.2,
        seeds: int | Sequence[int] = 1,
    ) -> Parts:
        """Cuts the queries by question, anew for each seed.

        Means over seeds are then means over splits, too.

        Args:
          validation: share of the queries that choose settings, in (0, 1).
          heldout: share of the rest that is never streamed, in (0, 1).
          seeds: how many, numbered from 0; or their numbers.

        Raises:
          ValueError: for a share out of its range, or too few questions.
        """
        require("validation", validation, "in (0, 1)", lambda x: 0 < x < 1)
        require("heldout", heldout, "in (0, 1)", lambda x: 0 < x < 1)
        shares = ((1 - validation) * (1 - heldout), validation, (1 - validation) * heldout)
        order = (1, 2, 0)  # validation, held-out, training: the order in which queries are cut
        numbers = range(seeds) if isinstance(seeds, int | np.integer) else seeds
        masks = np.zeros((3, len(numbers), len(self)), bool)
        for s, seed in enumerate(numbers):
            cut = split_by_group(self.groups, tuple(shares[i] for i in order), seed)
            for i, rows in zip(order, cut, strict=True):
                masks[i, s, rows] = True
        return Parts(*masks)

    def own_split(self, *, validation: float = 0.1, test: float = 0.2, seed: int = 0) -> Split:
        """Cuts the queries by the data set's own split where it has one, else by question.

        Args:
          validation: share of train, or of all queries where there is no split.
          test: share of all queries where there is no split; not read otherwise.
          seed: of the cut.
        """
        if self.dataset is None:
            parts = (1 - validation - test, validation, test)
            return Split(*self.split(parts, seed))
        parts = own.own_split(self.dataset, validation=validation, test=test, seed=seed)
        return Split(*(self.select(rows) for rows in parts))

    def queries_for(self, model: Any) -> list[str] | Float[np.ndarray, "N d"]:
        """Returns the queries in the form that a retriever or reranker reads.

        Args:
          model: with ``reads = "vectors"`` where it reads vectors although there are texts.

        Returns:
          the N texts; the vectors [N, d] where there are no texts or the model reads vectors.
        """
        if self.texts is None or getattr(model, "reads", "texts") == "vectors":
            return self.queries
        return list(self.texts)

    def require_vectors(self) -> None:
        """Raises ValueError where nothing was encoded."""
        if not self.theta.shape[1]:
            raise ValueError(f"{self.name} has no vectors: load it with an encoder")

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        items, width = self.theta.shape
        questions = len(np.unique(self.groups))
        shared = f" of {questions:,} questions" if questions < len(self) else ""
        repeated = f", {self.repeated:,} repeated" if self.repeated else ""
        queries = f"{len(self):,} queries{shared}{repeated}"
        return f"<{self.name}: {items:,} tools, {queries}, width {width}>"


def _words(name: str, words: Sequence[str] | None, length: int) -> tuple[str, ...] | None:
    """Checks that there are so many texts, and that each of them is a string with a word."""
    if words is None:
        return None
    require(name, words, "a list of strings", lambda x: not isinstance(x, str))
    require_length(name, words, length)
    for position, text in enumerate(words):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{name}[{position}] must be a string that is not blank, got {text!r}")
    return tuple(words)


def load_task(
    name: str,
    path: str | Path | None = None,
    *,
    encoder: str | Encoder | None = "minilm",
    document: str | Callable[[Document], str] = "full",
    cache: str | Path | None = None,
    hops: bool = False,
    **options,
) -> Task:
    """Loads a data set and encodes it; vectors come from the cache where they can.

    Args:
      name: of the data set: deskbank is built in, others are read from ``path``
        (`jaxret.data.SOURCES`; jsonl is a folder of one's own).
      path: the file or folder of the source.
      encoder: a name (`jaxret.encoders.ENCODERS`), one from `load_encoder`, or any callable
        ``list[str] -> [n, d]``, whose vectors are used as they are. None encodes nothing: the
        vectors then have width 0, for methods that read texts alone.
      document: the template that makes a text of a tool (`jaxret.data.templates.TEMPLATES`), or a
        function of one's own.
      cache: folder of encoded texts; None is ``$JAXRET_CACHE`` or ``~/.cache/jaxret``. Vectors of
        a callable are kept only where it has a ``cache_name`` (`jaxret.encoders.callables`).
      hops: whether the steps of each query become queries of their own (ORAG Algorithm 4), for
        sources with steps.
      **options: of the source.

    Raises:
      ValueError: for a name that is unknown, listing those there are; where a callable returns
        anything but one finite vector a text.
      FileNotFoundError: where the data or the encoder's weights are missing, saying what to do.
    """
    dataset = data.load(name, path, **options)
    dataset = as_hops(dataset) if hops else dataset
    return encoded(dataset, encoder, document=document, cache=cache)


def encoded(
    dataset: Dataset,
    encoder: str | Encoder | None = "minilm",
    *,
    document: str | Callable[[Document], str] = "full",
    cache: str | Path | None = None,
) -> Task:
    """Encodes a data set, and returns it as a task.

    Args:
      dataset: the tools, the queries and their labels.
      encoder: a name (`jaxret.encoders.ENCODERS`), one from `load_encoder`, or any callable
        ``list[str] -> [n, d]``, whose vectors are used as they are. None encodes nothing: the
        vectors then have width 0.
      document: the template that makes a text of a tool (`jaxret.data.templates.TEMPLATES`), or a
        function of one's own.
      cache: folder of encoded texts; None is ``$JAXRET_CACHE`` or ``~/.cache/jaxret``. Vectors of
        a callable are kept only where it has a ``cache_name`` (`jaxret.encoders.callables`).

    Returns:
      the task, with its texts and the data set that it comes from.

    Raises:
      ValueError: where a query has no label, the same label twice or one outside of the catalogue,
        where the encoder or the template is unknown, or where a callable returns anything but
        one finite vector a text.
      FileNotFoundError: where the encoder's weights are missing.
    """
    require_labels(dataset.labels, len(dataset.tool_ids))
    render = template(document) if isinstance(document, str) else document
    documents = tuple(render(one) for one in dataset.documents)
    texts = tuple(normalise(query) for query in dataset.queries)
    if isinstance(encoder, str):
        encoder = encoders.load_encoder(encoder)
    allowed = "a name, an encoder of load_encoder, a callable list[str] -> [n, d], or None"
    known = encoder is None or isinstance(encoder, encoders.TextEncoder) or callable(encoder)
    require("encoder", encoder, allowed, lambda _: known)
    if encoder is None:
        theta, queries = (np.zeros((len(one), 0), np.float32) for one in (documents, texts))
    else:
        folder = encoders.cache_directory() if cache is None else Path(cache)
        theta = encoders.encode(encoder, documents, kind="document", cache=folder)
        queries = encoders.encode(encoder, texts, kind="query", cache=folder)
        if (width := queries.shape[1]) != theta.shape[1]:
            name = encoders.encoder_name(encoder)
            raise ValueError(
                f"encoder {name!r} must return one width, got {theta.shape[1]} for documents and "
                f"{width} for queries"
            )
    return Task(
        name=dataset.name,
        ids=dataset.tool_ids,
        theta=theta,
        queries=queries,
        labels=dataset.labels,
        groups=dataset.groups,
        query_ids=dataset.query_ids,
        documents=documents,
        texts=texts,
        encoder=encoder,
        document=document if isinstance(document, str) else None,
        dataset=dataset,
    )
