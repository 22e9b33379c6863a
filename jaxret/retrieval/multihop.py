"""Multi-hop retrieval with a language model: what it is asked, and what counts as an answer.

    plan       a question -> sub-questions, each of which can be searched for alone
    verdict    a sub-question and the documents shown -> the useful one, or none
    fit        a sub-question and one document -> yes or no, in one token
    answer     a question and the documents of all its hops -> a few words

The agents of ORAG's pipeline (C.1.4, C.4, Figure 7), in words of our own. All but ``fit``, which is
a verdict that asks little of a small model, answer with a JSON object; one that is not what was
asked is `Malformed`, and asked for again by `jaxret.llm`. Each of the three has a schema, for an
endpoint that writes by one: a small model may else never end its list of sub-questions.
"""

import json
import re
import string
from collections.abc import Sequence
from typing import Any

from jaxret.llm import Malformed, Schema, object_schema

WORDS = 300  # of a document

PLAN = """\
Some facts have to be looked up before the question below can be answered. Write a short search \
question for each of these facts, at most {max_hops}, in the order in which you would look them up.
- A search question is read alone: repeat names, dates and whatever else it depends on.
- Together they must cover all that the answer needs, and nothing else.
- Do not answer any of them.

Question: {query}

Reply with a JSON object and nothing else: {{"sub_questions": ["...", "..."]}}"""

VERDICT = """\
A search found the {n} documents below. Which of them helps most to answer the question? If the \
question names a focus, the document must serve the focus.

Question: {query}

{documents}

Reply with a JSON object and nothing else, {{"index": i}}, where i is the number of the document, \
0 to {last}, or -1 if none of them helps."""

FIT = """\
Question: {query}

Document: {document}

Does the document help to answer the question? If the question names a focus, the document must \
serve the focus. Answer yes or no."""
FIT_WORDS = ("yes", "no")

ANSWER = """\
Answer the question from the documents below in as few words as possible: a name, a date, yes or \
no. If they do not settle it, give your best guess.

Question: {query}

{documents}

Reply with a JSON object and nothing else: {{"answer": "..."}}"""

_TEXT: Schema = {"type": "string"}
ANSWER_SCHEMA = object_schema(answer=_TEXT)

_ARTICLES = {"a", "an", "the"}
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation + "“”‘’")


def plan_question(query: str, *, max_hops: int) -> list[dict[str, str]]:
    """Asks for the sub-questions of a question."""
    return _message(PLAN.format(query=query, max_hops=max_hops))


def plan_schema(*, max_hops: int) -> Schema:
    """The form of a plan."""
    texts = {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": max_hops}
    return object_schema(sub_questions=texts)


def plan(answer: str, *, max_hops: int) -> list[str]:
    """The sub-questions.

    Raises:
      Malformed: unless they are a list of 1 to ``max_hops`` strings, none of them blank.
    """
    parts = _field(answer, "sub_questions")
    if not isinstance(parts, list) or not 1 <= len(parts) <= max_hops:
        raise Malformed(f"sub_questions must be a list of 1 to {max_hops}, got {parts!r:.80}")
    if wrong := [text for text in parts if not isinstance(text, str) or not text.strip()]:
        raise Malformed(f"sub_questions must be texts, got {wrong[0]!r:.80}")
    return [text.strip() for text in parts]


def verdict_question(
    query: str, documents: Sequence[str], *, words: int = WORDS
) -> list[dict[str, str]]:
    """Asks which of the documents shown is useful; each is cut to so many words."""
    n = len(documents)
    text = VERDICT.format(query=query, n=n, last=n - 1, documents=_numbered(documents, words))
    return _message(text)


def verdict_schema(n: int) -> Schema:
    """The form of a verdict on n documents."""
    return object_schema(index={"enum": list(range(-1, n))})


def verdict(answer: str, n: int) -> int:
    """The position of the useful one of n documents, or -1.

    Raises:
      Malformed: for anything but a whole number in -1 .. n - 1.
    """
    index = _field(answer, "index")
    if type(index) is not int or not -1 <= index < n:  # bool is an int to isinstance
        raise Malformed(f"index must be a whole number in -1 .. {n - 1}, got {index!r:.80}")
    return index


def fit_question(query: str, document: str, *, words: int = WORDS) -> list[dict[str, str]]:
    """Asks whether one document is useful; what follows the question is all that differs."""
    return _message(FIT.format(query=query, document=" ".join(document.split()[:words])))


def answer_question(
    query: str, documents: Sequence[str], *, words: int = WORDS
) -> list[dict[str, str]]:
    """Asks for the answer to a question; each document is cut to so many words."""
    return _message(ANSWER.format(query=query, documents=_numbered(documents, words)))


def final_answer(answer: str) -> str:
    """The words of the answer.

    Raises:
      Malformed: if it is not a text, or blank.
    """
    content = _field(answer, "answer")
    if not isinstance(content, str) or not content.strip():
        raise Malformed(f"answer must be a text, got {content!r:.80}")
    return content.strip()


def exact(answer: str, gold: str) -> bool:
    """Whether two answers are the same but for case, punctuation and articles."""
    return _words(answer) == _words(gold)


def contains(answer: str, gold: str) -> bool:
    """Whether the gold answer's words stand in the answer, one after the other."""
    answer_words, gold_words = _words(answer), _words(gold)
    return bool(gold_words) and f" {' '.join(gold_words)} " in f" {' '.join(answer_words)} "


def _words(text: str) -> list[str]:
    words = text.lower().translate(_NO_PUNCTUATION).split()
    return [word for word in words if word not in _ARTICLES]


def _message(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def _numbered(documents: Sequence[str], words: int) -> str:
    return "\n\n".join(
        f"[{i}] {' '.join(document.split()[:words])}" for i, document in enumerate(documents)
    )


def _field(answer: str, name: str) -> Any:
    """A field of the JSON object in an answer, whatever stands around the object."""
    match = re.search(r"\{.*\}", answer, re.DOTALL)
    try:
        return json.loads(match[0] if match else answer)[name]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise Malformed(f"no JSON object with {name!r}: {answer!r:.80}") from error
