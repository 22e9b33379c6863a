"""RankGPT: a language model puts a list of documents in order (Sun et al. 2023).

The model sees numbered passages and the query, and answers with identifiers, best first:
``[2] > [1] > [3]``. What an answer lacks is put behind what it has, in the order of before; what it
repeats or invents is dropped; an answer without any identifier is no answer. Lists longer than a
window are put in order from their end: a window of 20 slides up by 10, so that what is good rises.

Letters: N documents of a list.
"""

import re
from collections.abc import Sequence
from functools import partial

from jaxret.llm import Chat, Malformed
from jaxret.validate import require

WORDS = 300  # of a passage

SYSTEM = "You order passages by how well they answer a search query."
INTRODUCTION = (
    "There are {n} passages, each with an identifier in brackets. Order them by how well they "
    "answer this query: {query}"
)
ACKNOWLEDGED = "Please give me the passages."
RECEIVED = "I have passage [{i}]."
TASK = (
    "Query: {query}\nOrder the {n} passages above from the best to the worst. Write their "
    "identifiers as [2] > [1] and so on, all of them, and nothing else."
)


def question(query: str, documents: Sequence[str], *, words: int = WORDS) -> list[dict[str, str]]:
    """The conversation that asks for an order; each passage is cut to so many words."""
    n = len(documents)
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": INTRODUCTION.format(n=n, query=query)},
        {"role": "assistant", "content": ACKNOWLEDGED},
    ]
    for i, document in enumerate(documents, start=1):
        passage = " ".join(document.split()[:words])
        messages.append({"role": "user", "content": f"[{i}] {passage}"})
        messages.append({"role": "assistant", "content": RECEIVED.format(i=i)})
    messages.append({"role": "user", "content": TASK.format(query=query, n=n)})
    return messages


def permutation(answer: str, n: int) -> list[int]:
    """Positions 0 .. n - 1, best first, from an answer.

    Raises:
      Malformed: if it names no passage at all.
    """
    named = (int(number) - 1 for number in re.findall(r"\d+", answer))
    order = list(dict.fromkeys(i for i in named if 0 <= i < n))
    if not order:
        raise Malformed(f"names none of the {n} passages: {answer[:80]!r}")
    return order + [i for i in range(n) if i not in order]


def windows(n: int, *, size: int = 20, step: int = 10) -> list[tuple[int, int]]:
    """The parts of a list that are put in order one after the other, from its end to its start."""
    require("size", size, ">= 2", lambda x: x >= 2)
    require("step", step, f"in [1, {size}]", lambda x: 1 <= x <= size)
    parts = [(max(end - size, 0), end) for end in range(n, 0, -step)]
    last = next(i for i, (start, _) in enumerate(parts) if start == 0)
    return parts[: last + 1]


def rank(
    chat: Chat,
    query: str,
    documents: Sequence[str],
    *,
    words: int = WORDS,
    size: int = 20,
    step: int = 10,
) -> list[int]:
    """Positions of the documents, best first.

    Args:
      chat: who is asked.
      query: in words.
      documents: N of them, in the order of the first stage.
      words: to which each is cut.
      size: of a window.
      step: by which it moves up.

    Raises:
      Unanswered: if a window got no valid answer.
    """
    order = list(range(len(documents)))
    for start, end in windows(len(order), size=size, step=step):
        part = order[start:end]
        asked = question(query, [documents[i] for i in part], words=words)
        places = chat.ask(asked, partial(permutation, n=len(part)))
        order[start:end] = [part[i] for i in places]
    return order
