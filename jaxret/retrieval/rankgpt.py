"""RankGPT: a language model puts a list of documents in order (Sun et al. 2023).

The model sees numbered passages and the query, and answers with identifiers, best first:
``[2] > [1] > [3]``. Missing identifiers are appended in their previous order; repeated and invented
ones are dropped; an answer without any identifier is invalid. A list longer than a window is
ordered from its end: a window of 20 slides up by 10, so that good documents rise.

Letters: Q queries, N documents of a list.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxret.llm import Chat, Malformed, Prompt, load_prompt
from jaxret.runtime.validate import require

WORDS = 300  # most words of a passage

#: Our text. The two messages about a passage are repeated for each.
PROMPT = load_prompt(
    Path(__file__).parent / "prompts" / "rankgpt.txt",
    ("query", "i", "passage"),
    optional=("n",),
    roles=("system", "user", "assistant", "user", "assistant", "user"),
)


def question(
    query: str, documents: Sequence[str], *, words: int = WORDS, prompt: Prompt = PROMPT
) -> list[dict[str, str]]:
    """Return the messages that ask for an order of documents.

    Args:
      query: the text of the query.
      documents: the texts of n passages, which get the identifiers 1 .. n.
      words: number of words to which each document is cut.
      prompt: the text: the system's message, an introduction, its reply, a passage, its reply, and
        the task, with the placeholders of `PROMPT`.

    Returns:
      messages with a role and a content: an introduction, each passage, and the task.
    """
    *head, passage, received, task = prompt.parts

    def message(part, i="", text=""):
        role, template = part
        values = {"query": query, "n": len(documents), "i": i, "passage": text}
        return {"role": role, "content": template.substitute(values)}

    messages = [message(part) for part in head]
    for i, document in enumerate(documents, start=1):
        text = " ".join(document.split()[:words])
        messages += [message(passage, str(i), text), message(received, str(i))]
    return [*messages, message(task)]


class Order(NamedTuple):
    """The order of n passages in an answer."""

    positions: list[int]  # 0 .. n - 1, best first; passages that the answer lacks come last
    named: int  # distinct passages that the answer names
    repeated: int  # passages that the answer names again
    invented: int  # identifiers that no passage has

    @property
    def whole(self) -> bool:
        """True if the answer is a permutation."""
        return self.named == len(self.positions) and not self.repeated and not self.invented


def read_order(answer: str, n: int) -> Order:
    """Parse the order of n passages in an answer.

    Raises:
      Malformed: if the answer names no passage.
    """
    identifiers = [int(number) - 1 for number in re.findall(r"\d+", answer)]
    known = [i for i in identifiers if 0 <= i < n]
    named = list(dict.fromkeys(known))
    if not named:
        raise Malformed(f"names none of the {n} passages: {answer[:80]!r}")
    return Order(
        positions=named + [i for i in range(n) if i not in named],
        named=len(named),
        repeated=len(known) - len(named),
        invented=len(identifiers) - len(known),
    )


class Ranked(NamedTuple):
    """The orders of the lists of Q queries, and the answers about their windows."""

    orders: Int[np.ndarray, "Q N"]  # positions in the list, best first
    answers: list[list[Order | None]]  # Q of each window, from the end; None: order unchanged


def windows(n: int, *, size: int = 20, step: int = 10) -> list[tuple[int, int]]:
    """Return the windows of a list, from its end to its start.

    Args:
      n: documents of the list, at least 1.
      size: documents in a window, at least 2.
      step: documents by which the window moves up, in 1 .. size.

    Returns:
      the (start, end) of each window; the one that reaches the start is the last.

    Raises:
      ValueError: if ``size`` or ``step`` is out of its range.
    """
    require("size", size, ">= 2", lambda x: x >= 2)
    require("step", step, f"in [1, {size}]", lambda x: 1 <= x <= size)
    parts = [(max(end - size, 0), end) for end in range(n, 0, -step)]
    last = next(i for i, (start, _) in enumerate(parts) if start == 0)
    return parts[: last + 1]


def rank(
    chat: Chat,
    queries: Sequence[str],
    lists: Sequence[Sequence[str]],
    *,
    words: int = WORDS,
    size: int = 20,
    step: int = 10,
    prompt: Prompt = PROMPT,
    before: Callable[[], None] = lambda: None,
) -> Ranked:
    """Order the lists of many queries, one window of all lists at a time.

    Args:
      chat: the language model.
      queries: the texts of Q queries.
      lists: N documents of each query, in the order of the first stage.
      words: number of words to which each document is cut.
      size: documents in a window.
      step: documents by which the window moves up.
      prompt: the text of the questions.
      before: called before each question; an exception stops all questions.

    Returns:
      the orders, and the answers of each window.

    Raises:
      ValueError: if the lists differ in length, or there is not one per query.
    """
    n = len(lists[0]) if lists else 0
    require("lists", len(lists), f"{len(queries)}, one per query", lambda x: x == len(queries))
    require("their lengths", {len(x) for x in lists}, "all the same", lambda x: len(x) <= 1)
    orders, all_answers = np.tile(np.arange(n, dtype=np.int32), (len(queries), 1)), []
    for start, end in windows(n, size=size, step=step) if n else []:
        messages = [
            question(query, [documents[i] for i in order[start:end]], words=words, prompt=prompt)
            for query, documents, order in zip(queries, lists, orders, strict=True)
        ]
        parse, title = partial(read_order, n=end - start), f"ranks {start + 1} to {end}"
        answers = chat.ask_all(messages, parse, title=title, before=before)
        for order, answer in zip(orders, answers, strict=True):
            if answer is not None:
                order[start:end] = order[start:end][answer.positions]
        all_answers.append(answers)
    return Ranked(orders, all_answers)
