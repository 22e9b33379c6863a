"""How much the documents of a data set say (Tool-REX, Figure 1), and how long they are (Table 1).

Table 1 counts tokens and does not say of which tokenizer, nor in which text: the JSON of a document
or words alone. So the tokenizer is an argument here, and the text is what our encoders read: the
templates ``full`` and ``expanded`` of `jaxret.data.templates`, which stop at 8,192 characters. The
columns of Table 1 add up, so the profile's length is the difference of the other two. Its averages
are plain means of three domains, whatever their size (36,978, 3,794 and 2,443 tools).

Letters: I documents.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxret.data.dataset import Document
from jaxret.data.templates import template
from jaxret.documents.fields import GROUPS, canonical_fields, unknown_fields
from jaxret.documents.reading import KINDS, profile, read


class Coverage(NamedTuple):
    """What I documents hold."""

    documents: int  # I
    kinds: dict[str, int]  # of `KINDS` -> documents
    share: dict[str, float]  # canonical field -> documents that have it, not empty, over I
    unknown: dict[str, int]  # raw name without a group -> documents, most frequent first


class Lengths(NamedTuple):
    """Tokens of each document."""

    original: Int[np.ndarray, " I"]
    expanded: Int[np.ndarray, " I"]  # the original's where there is no profile

    @property
    def profile(self) -> Int[np.ndarray, " I"]:
        """What the profile adds."""
        return self.expanded - self.original


def coverage(documents: Sequence[Document]) -> Coverage:
    """Counts kinds and fields.

    Raises:
      ValueError: there are no documents, or one is empty; says which.
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
    """Measures documents with and without their profiles.

    Args:
      documents: I of them.
      count: text -> number of tokens.
    """
    full, expanded = template("full"), template("expanded")
    bare = [count(full(document)) for document in documents]
    of_expanded = [
        count(expanded(document)) if profile(document) else length
        for document, length in zip(documents, bare, strict=True)
    ]
    return Lengths(original=np.array(bare, np.int64), expanded=np.array(of_expanded, np.int64))
