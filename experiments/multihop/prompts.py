"""Prompts, parsers and selectors of the language model in `experiments.multihop`.

    plan       a question -> sub-questions, each of which can be searched for alone
    verdict    a sub-question and the documents shown -> the useful one, or none
    fit        a sub-question and one document -> yes or no, in one token
    answer     a question and the documents of all its hops -> a few words

These are the agents of ORAG's pipeline (C.1.4, C.4, Figure 7). Their texts, the files beside this
one, are in our wording (`PROMPTS`); ``prompts.NAME=FILE`` gives another. ``fit`` is a verdict for
small models. The other three answer with a JSON object. Any other answer is `Malformed`, and
`jaxret.llm` asks again. Each of the three has a schema for endpoints that support schemas; without
one a small model may never end its list of sub-questions.
"""

import json
import re
import string
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jaxret.llm import Chat, Malformed, Prompt, Schema, load_prompt, object_schema
from jaxret.types import Selector

WORDS = 300  # maximum words of a document

HERE = Path(__file__).parent
#: Our texts. A number is optional: another text may state its own, or none.
PROMPTS = {
    "plan": load_prompt(HERE / "plan.txt", ("query",), optional=("max_hops",)),
    "judge": load_prompt(HERE / "judge.txt", ("query", "documents"), optional=("n", "last")),
    "judge_each": load_prompt(HERE / "judge_each.txt", ("query", "document")),
    "answer": load_prompt(HERE / "answer.txt", ("query", "documents")),
}
FIT_WORDS = ("yes", "no")

_TEXT: Schema = {"type": "string"}
ANSWER_SCHEMA = object_schema(answer=_TEXT)

_ARTICLES = {"a", "an", "the"}
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation + "“”‘’")


def plan_schema(*, max_hops: int) -> Schema:
    """Return the JSON schema of a plan."""
    texts = {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": max_hops}
    return object_schema(sub_questions=texts)


def plan(answer: str, *, max_hops: int) -> list[str]:
    """Parse the sub-questions."""
    parts = _field(answer, "sub_questions")
    if not isinstance(parts, list) or not 1 <= len(parts) <= max_hops:
        raise Malformed(f"sub_questions must be a list of 1 to {max_hops}, got {parts!r:.80}")
    if wrong := [text for text in parts if not isinstance(text, str) or not text.strip()]:
        raise Malformed(f"sub_questions must be texts, got {wrong[0]!r:.80}")
    return [text.strip() for text in parts]


def verdict_schema(n: int) -> Schema:
    """Return the JSON schema of a verdict on n documents."""
    return object_schema(index={"enum": list(range(-1, n))})


def verdict(answer: str, n: int) -> int:
    """Parse the position of the useful one of n documents, or -1."""
    index = _field(answer, "index")
    if type(index) is not int or not -1 <= index < n:  # isinstance would accept bools
        raise Malformed(f"index must be a whole number in -1 .. {n - 1}, got {index!r:.80}")
    return index


def final_answer(answer: str) -> str:
    """Parse the words of the answer."""
    content = _field(answer, "answer")
    if not isinstance(content, str) or not content.strip():
        raise Malformed(f"answer must be a text, got {content!r:.80}")
    return content.strip()


def exact(answer: str, gold: str) -> bool:
    """Return whether two answers agree up to case, punctuation and articles."""
    return _words(answer) == _words(gold)


def contains(answer: str, gold: str) -> bool:
    """Return whether the words of the gold answer occur consecutively in the answer."""
    answer_words, gold_words = _words(answer), _words(gold)
    return bool(gold_words) and f" {' '.join(gold_words)} " in f" {' '.join(answer_words)} "


def _words(text: str) -> list[str]:
    words = text.lower().translate(_NO_PUNCTUATION).split()
    return [word for word in words if word not in _ARTICLES]


def cut(document: str) -> str:
    """Return the first `WORDS` words of a document."""
    return " ".join(document.split()[:WORDS])


def numbered(documents: Iterable[str]) -> str:
    """List documents with their positions, which verdicts name, each of them `cut`."""
    return "\n\n".join(f"[{i}] {cut(document)}" for i, document in enumerate(documents))


def _field(answer: str, name: str) -> Any:
    """Parse a field of the JSON object in an answer, ignoring text around the object."""
    match = re.search(r"\{.*\}", answer, re.DOTALL)
    try:
        return json.loads(match[0] if match else answer)[name]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise Malformed(f"no JSON object with {name!r}: {answer!r:.80}") from error


def by_judge(
    chat: Chat,
    texts: Sequence[str],
    documents: Sequence[str],
    *,
    own_bit: bool = False,
    prompt: Prompt = PROMPTS["judge"],
) -> Selector:
    """Make a selector of a judge that sees the whole slate.

    Where the judge names no document, or gives no valid answer, the first one is selected.
    """

    def select(queries, items):
        n = items.shape[1]
        shown = [numbered(documents[i] for i in slate) for slate in items]
        asked = [
            prompt.messages(query=texts[query], n=str(n), last=str(n - 1), documents=text)
            for query, text in zip(queries, shown, strict=True)
        ]
        parse = partial(verdict, n=n)
        verdicts = chat.ask_all(asked, parse, schema=verdict_schema(n), progress=False)
        named = np.array([-1 if one is None else one for one in verdicts])
        positions = np.maximum(named, 0)
        return (positions, (named >= 0).astype(np.float32)) if own_bit else positions

    return select


def by_fit(
    chat: Chat,
    texts: Sequence[str],
    documents: Sequence[str],
    *,
    own_bit: bool = False,
    prompt: Prompt = PROMPTS["judge_each"],
) -> Selector:
    """Make a selector of a judge that sees one document at a time.

    It selects the document with the highest probability of yes. Each pair is asked about once, for
    one token; without a valid answer the probability is 0.
    """
    known = np.full((len(texts), len(documents)), np.nan, np.float32)
    yes, no = FIT_WORDS

    def select(queries, items):
        wanted = np.broadcast_to(queries[:, None], items.shape)
        new = np.isnan(known[wanted, items])
        pairs = np.unique(np.stack([wanted[new], items[new]], axis=1), axis=0)
        asked = [prompt.messages(query=texts[n], document=cut(documents[i])) for n, i in pairs]
        weights = chat.weigh_all(asked, FIT_WORDS, progress=False)
        for (n, i), found in zip(pairs, weights, strict=True):
            known[n, i] = 0.0 if found is None else found[yes] / (found[yes] + found[no])
        shown = known[wanted, items]
        best = shown.argmax(axis=1)
        bits = (shown.max(axis=1) > 0.5).astype(np.float32)
        return (best, bits) if own_bit else best

    return select
