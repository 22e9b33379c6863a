"""Measures which fields the documents of a data set have (Tool-REX, Figure 1) and their lengths.

Table 1 counts tokens, but names neither the tokenizer nor the text: the JSON of a document or its
words alone. So the tokenizer is an argument here, and the text is the input of our encoders: the
templates ``full`` and ``expanded`` of `jaxret.data.templates`, cut at 8,192 characters. The columns
of Table 1 add up, so the length of the profile is the difference of the other two. The averages of
the paper are plain means over three domains of 36,978, 3,794 and 2,443 tools.

Letters: I documents.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxret.data.dataset import Document
from jaxret.data.templates import template
from jaxret.documents import GROUPS, canonical_fields, profile, read, unknown_fields
from jaxret.documents.fields import KINDS


class Coverage(NamedTuple):
    """The forms of I documents and the fields in them."""

    documents: int  # I
    kinds: dict[str, int]  # kind, one of `KINDS` -> number of documents
    share: dict[str, float]  # canonical field -> share of documents where it is not empty
    unknown: dict[str, int]  # raw name without a group -> documents, most frequent first


class Lengths(NamedTuple):
    """Numbers of tokens of each document."""

    original: Int[np.ndarray, " I"]
    expanded: Int[np.ndarray, " I"]  # equal to the original without a profile

    @property
    def profile(self) -> Int[np.ndarray, " I"]:
        """Tokens that the profile adds, [I]."""
        return self.expanded - self.original


def coverage(documents: Sequence[Document]) -> Coverage:
    """Counts the kinds of documents and the fields that are not empty.

    Args:
      documents: I dicts or strings.

    Raises:
      ValueError: there are no documents, or one has no content.
    """
    if not documents:
        raise ValueError("there are no documents to look at")
    kinds, present, unknown_names = Counter(), Counter(), Counter()
    for number, document in enumerate(documents):
        try:
            kinds[read(document).kind] += 1
        except (TypeError, ValueError) as error:
            raise ValueError(f"document {number} of {len(documents)}: {error}") from error
        present.update(group for group, values in canonical_fields(document).items() if values)
        unknown_names.update(unknown_fields(document).keys())
    return Coverage(
        documents=len(documents),
        kinds={kind: kinds[kind] for kind in KINDS if kinds[kind]},
        share={group: present[group] / len(documents) for group in GROUPS},
        unknown=dict(unknown_names.most_common()),
    )


def lengths(documents: Sequence[Document], count: Callable[[str], int]) -> Lengths:
    """Counts the tokens of documents with and without their profiles.

    Args:
      documents: I dicts or strings.
      count: maps a text to its number of tokens.
    """
    full, expanded = template("full"), template("expanded")
    bare = [count(full(document)) for document in documents]
    of_expanded = [
        count(expanded(document)) if profile(document) else length
        for document, length in zip(documents, bare, strict=True)
    ]
    return Lengths(original=np.array(bare, np.int64), expanded=np.array(of_expanded, np.int64))
