"""A task: tools as rows, queries as vectors, and the right tools of each query.

    task = load_task("deskbank", encoder="minilm", document="full")     encoded texts
    task = Task.from_arrays(theta, queries, labels)                     given vectors
    train, test = task.split((0.8, 0.2), seed=0)                        no question in both parts

All learners, retrievers and measurements take a `Task`. Its arrays are NumPy arrays on the host;
parts of a task share its catalogue.

Letters: I items (tools), d width, N queries, L labels per query (padded with -1).
"""

from collections.abc import Callable, Sequence, Sized
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
from jaxret.types import Prior


def _in_order_of_appearance(values: np.ndarray) -> Int[np.ndarray, " N"]:
    """Give each different value (or row) a number from 0, as a data set's questions have."""
    if not len(values):
        return np.zeros(0, np.int32)
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
        """Mask of all queries except the validation queries [S, N]."""
        return ~self.validation


class Split(NamedTuple):
    """Training, validation and test parts of a task, each a task of its own."""

    train: "Task"
    validation: "Task"
    test: "Task"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Task:
    """A catalogue and its queries, from `load_task` or `Task.from_arrays`.

    A task without queries is a catalogue alone, as a live index needs it. What streams, splits,
    trains or evaluates asks for queries (`require_queries`).

    Attributes:
      name: name of the task in tables.
      ids: ids of the I tools.
      theta: initial rows Theta_1 [I, d].
      queries: embeddings of the queries [N, d].
      labels: positions in ``ids`` of the right tools of each query [N, L], padded with -1; all -1
        if no tool is right.
      groups: number of the question of each query [N]; splits keep questions together.
      query_ids: ids of the N queries.
      available: mask of the tools that can be shown [I]; None: all tools.
      documents: the I documents, as encoded; None: the task has only vectors.
      texts: the N queries, as encoded; None: the task has only vectors.
      encoder: encoder of the vectors; None: vectors were given.
      document: name of the template of the documents; None: no template.
      dataset: source of the task; None: the task was made from arrays.
      lexical: whether `prior` is the match of the words of queries and documents.
      given_prior: prior scores that were given, fields [N, K]; None: none were given.
    """

    name: str
    ids: tuple[str, ...]
    theta: Float[np.ndarray, "I d"]
    queries: Float[np.ndarray, "N d"]
    labels: Int[np.ndarray, "N L"]
    groups: Int[np.ndarray, " N"]
    query_ids: tuple[str, ...]
    available: Bool[np.ndarray, " I"] | None = None
    documents: tuple[str, ...] | None = None
    texts: tuple[str, ...] | None = None
    encoder: Encoder | None = None
    document: str | None = None
    dataset: Dataset | None = field(default=None)
    lexical: bool = False
    given_prior: Prior | None = None

    @classmethod
    def from_arrays(
        cls,
        theta: Float[ArrayLike, "I d"],
        queries: Float[ArrayLike, "N d"] | None = None,
        labels: ArrayLike | Sequence[int] | Sequence[Sequence[int]] | None = None,
        *,
        ids: Sequence[str] | None = None,
        groups: ArrayLike | Sequence[int] | Sequence[str] | None = None,
        available: ArrayLike | Sequence[bool] | None = None,
        texts: Sequence[str] | None = None,
        documents: Sequence[str] | None = None,
        prior: Float[ArrayLike, "N I"] | None = None,
        none_right: bool = False,
        name: str = "arrays",
    ) -> Self:
        """Make a task from vectors.

        Args:
          theta: embeddings of the tools [I, d], finite.
          queries: [N, d], finite; None, or no rows: the task is a catalogue alone.
          labels: row in ``theta`` of the right tool of each query [N]; or several rows, as [N, L]
            padded with -1 or as lists.
          ids: distinct ids of the tools; None: numbers.
          groups: [N], equal for queries of one question, which splits keep together; None: queries
            with the same vector are one question.
          available: mask of the available tools [I]; None: all tools.
          texts: texts of the queries [N], for methods and rerankers that read words.
          documents: texts of the tools [I], for methods and rerankers that read words.
          prior: scores of the tools for each query that are known before its feedback [N, I],
            finite, such as those of a second retriever. Learners weigh them against cosines, so
            their scale is about 0 to 1, and 0 means no score. None: the match of the words, if
            there are texts and documents.
          none_right: whether queries may have no label (an empty list, or a row of -1), which means
            that no tool is right for them. Rewards are then 0 for any tool, and metrics are
            averages over the other queries.
          name: name of the task in tables.

        Raises:
          ValueError: if shapes do not match, a number is not finite, a label is outside
            -1 .. I - 1, a query has no label (unless ``none_right``) or one twice, an id occurs
            twice, or a text is blank.
        """
        theta = matrix_of("theta", theta)
        if (queries is None) != (labels is None):
            raise ValueError("queries and labels belong together: give both, or neither")
        if queries is None or (isinstance(queries, Sized) and not len(queries)):
            queries = np.zeros((0, theta.shape[1]), np.float32)
        else:
            queries = matrix_of("queries", queries)
        labels = label_rows([] if labels is None else labels)
        require_task(theta, queries, labels)
        require_labels(labels, len(theta), none_right=none_right)
        ids = tuple(map(str, range(len(theta)) if ids is None else ids))
        require_length("ids", ids, len(theta))
        require_different("ids", ids)
        groups = queries if groups is None else np.asarray(groups)
        require_length("groups", groups, len(queries))
        if available is not None:
            available = np.asarray(available, bool)
            require_length("available", available, len(theta))
            require("available", available, "True for one tool or more", np.any)
        given = None
        if prior is not None:
            from jaxret.encoders.lexical import sparse_prior

            scores = matrix_of("prior", prior)
            shape = (len(queries), len(theta))
            require("the shape of prior", scores.shape, f"{shape} [N, I]", shape.__eq__)
            if not (finite := np.isfinite(scores).all(axis=1)).all():
                raise ValueError(f"row {np.flatnonzero(~finite)[0]} of prior is not finite")
            given = sparse_prior(scores)
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
            lexical=given is None,
            given_prior=given,
        )

    @cached_property
    def prior(self) -> Prior | None:
        """Scores of the tools for each query, known before its feedback, fields [N, K].

        Those given to `from_arrays`, else the match of the words of queries and documents
        (`jaxret.encoders.lexical`), computed when it is first read; None if there are neither.
        """
        if self.given_prior is not None or not self.lexical:
            return self.given_prior
        if not self.texts or self.documents is None:
            return None
        from jaxret.encoders.lexical import Lexicon  # imports SciPy, which most tasks do not need

        return Lexicon(self.documents).prior(self.texts)

    def prior_scores(self) -> Float[np.ndarray, "N I"]:
        """Return the prior score of every tool for every query, 0 where there is none.

        Returns:
          [N, I].

        Raises:
          ValueError: if the task has no prior.
        """
        if self.prior is None:
            raise ValueError(
                f"{self.name} has no prior scores: give Task.from_arrays(texts=, documents=) or "
                "(prior=), or load_task(lexical=True)"
            )
        items, scores = map(np.asarray, self.prior)
        whole = np.zeros((len(self), len(self.ids) + 1), np.float32)  # the last column is padding
        np.put_along_axis(whole, np.where(items < 0, len(self.ids), items), scores, axis=1)
        return whole[:, :-1]

    @cached_property
    def answerable(self) -> Bool[np.ndarray, " N"]:
        """Mask of the queries for which a tool of the catalogue is right [N]."""
        return np.asarray((self.labels >= 0).any(axis=1))

    @cached_property
    def repeated(self) -> int:
        """Number of queries that repeat an earlier query, by text or else by vector."""
        if self.texts is not None:
            return len(self.texts) - len(set(self.texts))
        return 0 if not len(self) else len(self.queries) - len(np.unique(self.queries, axis=0))

    def select(self, rows: ArrayLike | Sequence[int] | Sequence[bool]) -> Self:
        """Select queries, with the whole catalogue.

        Args:
          rows: positions [M], or a mask [N].
        """
        rows = np.asarray(rows)
        chosen = np.arange(len(self))[rows if rows.size else rows.astype(np.int32)]

        def pick(values):
            return None if values is None else tuple(values[row] for row in chosen)

        def prior_of(whole):
            return None if whole is None else Prior._make(x[chosen] for x in whole)

        part = replace(
            self,
            queries=self.queries[chosen],
            labels=self.labels[chosen],
            groups=self.groups[chosen],
            query_ids=tuple(self.query_ids[row] for row in chosen),
            texts=pick(self.texts),
            given_prior=prior_of(self.given_prior),
            dataset=None if self.dataset is None else select(self.dataset, chosen),
        )
        if "prior" in self.__dict__:  # not computed again for each part
            part.__dict__["prior"] = prior_of(self.prior)
        return part

    def with_theta(self, theta: Float[ArrayLike, "I d"]) -> Self:
        """Replace the initial rows of the tools, such as by Tool2Vec.

        Args:
          theta: [I, d], finite.

        Raises:
          ValueError: if the shape differs, or a row is not finite.
        """
        rows = np.asarray(theta, np.float32)
        if rows.shape != self.theta.shape:
            raise ValueError(f"theta must be {list(self.theta.shape)}, got {list(rows.shape)}")
        require_task(rows, self.queries, self.labels)
        return replace(self, theta=rows)

    def split(self, shares: tuple[float, ...], seed: int = 0) -> tuple[Self, ...]:
        """Split the queries at random, by question.

        Args:
          shares: share of the queries in each part, positive, with sum 1.
          seed: seed of the split.

        Raises:
          ValueError: if the task has no queries, the shares are not positive with sum 1, or a part
            would be empty.
        """
        self.require_queries()
        return tuple(self.select(rows) for rows in split_by_group(self.groups, shares, seed))

    def parts(
        self, *, validation: float = 0.1, heldout: float = 0.2, seeds: int | Sequence[int] = 1
    ) -> Parts:
        """Split the queries at random, by question and differently for each seed.

        Means over seeds are then also means over splits.

        Args:
          validation: share of the queries that choose settings, in (0, 1).
          heldout: share of the rest that is never streamed, in (0, 1).
          seeds: number of seeds, counted from 0; or the seeds themselves.

        Raises:
          ValueError: if a share is out of its range, or there are too few questions.
        """
        self.require_queries()
        require("validation", validation, "in (0, 1)", lambda x: 0 < x < 1)
        require("heldout", heldout, "in (0, 1)", lambda x: 0 < x < 1)
        shares = ((1 - validation) * (1 - heldout), validation, (1 - validation) * heldout)
        order = (1, 2, 0)  # order of the random split: validation, held-out, training
        numbers = range(seeds) if isinstance(seeds, int | np.integer) else seeds
        masks = np.zeros((3, len(numbers), len(self)), bool)
        for s, seed in enumerate(numbers):
            cut = split_by_group(self.groups, tuple(shares[i] for i in order), seed)
            for i, rows in zip(order, cut, strict=True):
                masks[i, s, rows] = True
        return Parts(*masks)

    def own_split(self, *, validation: float = 0.1, test: float = 0.2, seed: int = 0) -> Split:
        """Split the queries by the data set's own split if it has one, else by question.

        Args:
          validation: share of train, or of all queries if the data set has no split.
          test: share of all queries; ignored if the data set has a split.
          seed: seed of the split.

        Raises:
          ValueError: if the task has no queries, a share is out of its range, a part would be
            empty, or the data set's own parts have other names or share questions.
        """
        self.require_queries()
        if self.dataset is None:
            parts = (1 - validation - test, validation, test)
            return Split(*self.split(parts, seed))
        parts = own.own_split(self.dataset, validation=validation, test=test, seed=seed)
        return Split(*(self.select(rows) for rows in parts))

    def queries_for(self, model: Any) -> list[str] | Float[np.ndarray, "N d"]:
        """Return the queries in the form that a retriever or reranker reads.

        Args:
          model: retriever or reranker; its attribute ``reads`` is "vectors" if it reads vectors
            even when there are texts.

        Returns:
          the N texts; the vectors [N, d] if there are no texts or the model reads vectors.
        """
        if self.texts is None or getattr(model, "reads", "texts") == "vectors":
            return self.queries
        return list(self.texts)

    def require_vectors(self) -> None:
        """Raise ValueError if the task was not encoded."""
        if not self.theta.shape[1]:
            raise ValueError(f"{self.name} has no vectors: load it with an encoder")

    def require_queries(self) -> None:
        """Raise ValueError if the task is a catalogue alone."""
        if not len(self):
            raise ValueError(
                f"{self.name} has no queries, which a live index alone can do without: give "
                "load_task('tools', FILE, queries=FILE) or Task.from_arrays(theta, queries, labels)"
            )

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        items, width = self.theta.shape
        if not len(self):
            return f"<{self.name}: {items:,} tools, no queries, width {width}>"
        questions = len(np.unique(self.groups))
        shared = f" of {questions:,} questions" if questions < len(self) else ""
        repeated = f", {self.repeated:,} repeated" if self.repeated else ""
        none = int((~self.answerable).sum())
        without = f", {none:,} without a right tool" if none else ""
        queries = f"{len(self):,} queries{shared}{repeated}{without}"
        return f"<{self.name}: {items:,} tools, {queries}, width {width}>"


def _words(name: str, words: Sequence[str] | None, length: int) -> tuple[str, ...] | None:
    """Check that there are so many texts, and that each of them is a string with a word."""
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
    lexical: bool = True,
    none_right: bool = False,
    **options,
) -> Task:
    """Load a data set and encode it, or read the vectors from the cache.

    Args:
      name: name of the data set: deskbank is built in, others are read from ``path``
        (`jaxret.data.SOURCES`; tools is a list of your own tools, jsonl a folder of your own).
      path: file or folder of the data.
      encoder: a name (`jaxret.encoders.ENCODERS`), an encoder from `load_encoder`, or any callable
        ``list[str] -> [n, d]``, whose vectors are not changed. None: texts are not encoded, and
        vectors have width 0, for methods that only read texts.
      document: name of the template of tool documents (`jaxret.data.templates.TEMPLATES`), or a
        function from a tool to a text.
      cache: folder of encoded texts; None: ``$JAXRET_CACHE`` or ``~/.cache/jaxret``. Vectors of a
        callable are cached only if it has a ``cache_name`` (`jaxret.encoders.callables`).
      hops: whether the steps of each query become queries of their own (ORAG Algorithm 4), for
        sources with steps.
      lexical: whether queries have lexical prior scores, computed when they are first read.
      none_right: whether queries may have no label, which means that no tool is right for them; for
        data in the general layout (`jaxret.data.jsonl`), with ``"labels": []``.
      **options: further options of the source.

    Raises:
      ValueError: if the name is unknown, or a callable does not return one finite vector per text.
      FileNotFoundError: if the data or the encoder's weights are missing.
    """
    options |= {"none_right": True} if none_right else {}
    dataset = data.load(name, path, **options)
    dataset = as_hops(dataset) if hops else dataset
    return encoded(dataset, encoder, document=document, cache=cache, lexical=lexical)


def encoded(
    dataset: Dataset,
    encoder: str | Encoder | None = "minilm",
    *,
    document: str | Callable[[Document], str] = "full",
    cache: str | Path | None = None,
    lexical: bool = True,
) -> Task:
    """Encode a data set, and return it as a task.

    Args:
      dataset: tools, queries and labels.
      encoder: a name (`jaxret.encoders.ENCODERS`), an encoder from `load_encoder`, or any callable
        ``list[str] -> [n, d]``, whose vectors are not changed. None: texts are not encoded, and
        vectors have width 0.
      document: name of the template of tool documents (`jaxret.data.templates.TEMPLATES`), or a
        function from a tool to a text.
      cache: folder of encoded texts; None: ``$JAXRET_CACHE`` or ``~/.cache/jaxret``. Vectors of a
        callable are cached only if it has a ``cache_name`` (`jaxret.encoders.callables`).
      lexical: whether queries have lexical prior scores, computed when they are first read.

    Returns:
      The task, with its texts and data set.

    Raises:
      ValueError: if a query has no label and the data set does not allow this, the same label twice
        or one outside the catalogue, the encoder or template is unknown, or a callable does not
        return one finite vector per text.
      FileNotFoundError: if the encoder's weights are missing.
    """
    require_labels(dataset.labels, len(dataset.tool_ids), none_right=dataset.none_right)
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
        theta = encoders.encode(
            encoder, documents, kind="document", cache=folder, names=dataset.tool_ids
        )
        queries = np.zeros((0, theta.shape[1]), np.float32)
        if texts:
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
        lexical=lexical,
    )
