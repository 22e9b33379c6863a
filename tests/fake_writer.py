"""A fake language model that writes, polishes and judges queries, with optional failures."""

import json
import re
from collections import Counter
from collections.abc import Callable

from tests.fake_llm import Reply


def stage(messages) -> str:
    """Return the pipeline stage that a prompt belongs to."""
    begin = messages[0]["content"]
    kinds = {"You write": "write", "You edit": "polish", "You compare": "judge"}
    return next(name for words, name in kinds.items() if begin.startswith(words))


def offered(messages) -> list[str]:
    """Return the tools that a prompt offers."""
    return re.findall(r"^\d+\. ([\w.]+):", messages[1]["content"], re.MULTILINE)


def good(messages) -> str:
    """Return a valid answer, equal for equal prompts."""
    kind = stage(messages)
    if kind == "judge":
        a, b = re.findall(r"Request [AB]: (.*)", messages[1]["content"])
        better = "tie" if a == b else "A" if len(a) > len(b) else "B"
        return json.dumps(dict.fromkeys(("naturalness", "fluency", "coherence", "overall"), better))
    if kind == "polish":
        raw = re.search(r"The request: (.*)", messages[1]["content"])[1]
        return json.dumps({"reasoning": "stiff", "instruction": f"Please, {raw.lower()}"})
    tools = offered(messages)
    return draft(tools[: 2 + sum(map(ord, tools[0])) % 4], " ".join(tools))


def draft(functions, about="") -> str:
    """Return an answer to a prompt that asks for a query."""
    words = " ".join(f"w{sum(map(ord, word)) % 9973}" for word in about.split())
    found = {
        "functions": list(functions),
        "explanation": "one after the other",
        "instruction": f"Tell me {words} of the mill",
    }
    return f"Here it is:\n{json.dumps(found)}\nI hope it helps."


class Writer:
    """Answers prompts; ``faults`` replaces the answer to the n-th prompt of a stage.

    ``asked`` counts the answers to each conversation.
    """

    def __init__(self, faults: Callable[[str, int, list], Reply | None] = lambda *_: None):
        self.asked: Counter[str] = Counter()
        self._numbers: dict[str, list[str]] = {}
        self._faults = faults

    def __call__(self, messages, i) -> Reply:
        self.asked[json.dumps(messages)] += 1
        seen = self._numbers.setdefault(stage(messages), [])
        first = json.dumps(messages[:2])
        if first not in seen:
            seen.append(first)
        fault = self._faults(stage(messages), seen.index(first), messages)
        return fault or Reply(good(messages))
