"""The tool profile that expansion adds to a document, and the rules for it (Tool-REX, 2.3).

    function        what the tool does                       required
    tags            words to find it by                      required
    when_to_use     in which situations
    limitation      what it cannot do, or needs
    example_usage   queries with the calls that answer them

Only what the documentation supports is written, so all but the first two may be missing. The paper
calls two of them function_description and limitations in its text; data and prompts have the names
above, and so does `jaxret.data.templates`.

Expanded document = original + profile. ``example_usage`` is kept apart from the profile: retrieval
is better without it. (The paper's sentence on that says ``when_to_use`` where it means this field;
what it keeps, and its ablation, show which one was dropped.)
"""

import json
import re
from typing import Any, NamedTuple

from jaxret.data.dataset import Document
from jaxret.data.templates import PROFILE_FIELDS
from jaxret.llm import Schema, object_schema

REQUIRED = ("function", "tags")
FIELDS = (*PROFILE_FIELDS, "example_usage")
EXAMPLE_FIELDS = ("query", "api_call")
SAYS_NOTHING = {"none", "null", "n/a", "na", "unknown", "not specified", "not applicable", "-"}
#: A sentence on what the documentation lacks, in place of leaving the field out.
_LACKS = re.compile(
    r"^(the )?(tool'?s? )?(documentation|description) (does not|doesn't|has no)\b"
    r"|^(the )?tool (does not|doesn't) (specify|state|mention|list) any "
    r"(restriction|limitation|limit)s?\b"
    r"|^(there are )?no (specific |explicit |known |stated )*(restriction|limitation|limit)s?\b"
    r"|\b(restriction|limitation)s? (is|are) (not )?(stated|specified|mentioned|documented)\b"
    r"|\bnot (explicitly )?(stated|specified|mentioned) in the documentation\b",
    re.I,
)


class Rules(NamedTuple):
    """Bounds of a profile. Those of tags, examples, function and when_to_use are the paper's."""

    text_words: int = 20  # function and when_to_use have fewer
    limitation_words: int = 40  # it has fewer
    tags_least: int = 3
    tags_most: int = 5
    tag_words: int = 5  # at most, in one tag
    examples: int = 2  # at most


def aim(words: int) -> int:
    """What a writer is asked for, where so many are allowed: language models do not count well."""
    return max(1, 2 * words // 3)


def longest(rules: Rules) -> dict[str, int]:
    """How many words the texts of a profile may have, by field."""
    words = {"function": rules.text_words, "when_to_use": rules.text_words}
    words["limitation"] = rules.limitation_words
    return {field: limit - 1 for field, limit in words.items()}


def schema(rules: Rules) -> Schema:
    """The form of a profile for endpoints that write by one. It knows fields, and no words."""
    text = {"type": "string"}
    example = object_schema(**dict.fromkeys(EXAMPLE_FIELDS, text))
    fields: dict[str, Any] = {"function": text}
    fields["tags"] = {
        "type": "array",
        "items": text,
        "minItems": rules.tags_least,
        "maxItems": rules.tags_most,
    }
    fields |= {"when_to_use": text, "limitation": text}
    fields["example_usage"] = {
        "type": "array",
        "items": example,
        "minItems": 1,
        "maxItems": rules.examples,
    }
    return {
        "type": "object",
        "properties": fields,
        "required": list(REQUIRED),
        "additionalProperties": False,
    }


def tidy(profile: Any) -> Any:
    """What is not worth a question: blanks around texts, capitals and repetitions in tags, fields
    that are null or say that the documentation says nothing, calls as objects."""
    if not isinstance(profile, dict):
        return profile
    tidied = {key: _stripped(value) for key, value in profile.items() if value is not None}
    for field in ("when_to_use", "limitation"):
        if isinstance(text := tidied.get(field), str) and _LACKS.search(text):
            del tidied[field]
    if isinstance(tags := tidied.get("tags"), list):
        lowered = [tag.lower() if isinstance(tag, str) else tag for tag in tags]
        tidied["tags"] = [tag for i, tag in enumerate(lowered) if tag not in lowered[:i]]
    if isinstance(examples := tidied.get("example_usage"), list):
        tidied["example_usage"] = [_with_call_as_text(example) for example in examples]
    return tidied


def violations(profile: Any, rules: Rules) -> list[str]:
    """What is wrong with a profile, one message a violation; empty if nothing is."""
    if not isinstance(profile, dict):
        return [f"the profile must be a JSON object, got {profile!r:.60}"]
    messages = [f"{field} is missing" for field in REQUIRED if field not in profile]
    messages += [
        f"{field} is no field of a profile; these are: {', '.join(FIELDS)}"
        for field in profile
        if field not in FIELDS
    ]
    for field, words in longest(rules).items():
        if field in profile:
            messages += _text(field, profile[field], words)
    if "tags" in profile:
        messages += _tags(profile["tags"], rules)
    if "example_usage" in profile:
        messages += _examples(profile["example_usage"], rules)
    return messages


def expand(document: Document, profile: dict[str, Any]) -> dict[str, Any]:
    """The expanded document, as `jaxret.data.templates` reads it: without ``example_usage``."""
    fields = document if isinstance(document, dict) else {"documentation": document}
    kept = {field: profile[field] for field in PROFILE_FIELDS if field in profile}
    return fields | {"tool_profile": kept}


def _tags(tags: Any, rules: Rules) -> list[str]:
    if not isinstance(tags, list):
        return [f"tags must be a list of texts, got {tags!r:.60}"]
    messages = []
    if not rules.tags_least <= len(tags) <= rules.tags_most:
        messages.append(f"tags must be {rules.tags_least} to {rules.tags_most}, got {len(tags)}")
    for i, tag in enumerate(tags):
        messages += _text(f"tags[{i}]", tag, rules.tag_words)
    texts = [tag for tag in tags if isinstance(tag, str)]
    again = sorted({tag for tag in texts if texts.count(tag) > 1})
    return messages + [f"tags has {tag!r} more than once" for tag in again]


def _examples(examples: Any, rules: Rules) -> list[str]:
    if not isinstance(examples, list):
        return [f"example_usage must be a list, got {examples!r:.60}"]
    if not 1 <= len(examples) <= rules.examples:
        return [f"example_usage must be 1 to {rules.examples}, or left out; got {len(examples)}"]
    messages = []
    for i, example in enumerate(examples):
        if not isinstance(example, dict) or set(example) != set(EXAMPLE_FIELDS):
            wanted = " and ".join(EXAMPLE_FIELDS)
            messages.append(f"example_usage[{i}] must have {wanted} alone, got {example!r:.60}")
            continue
        for field in EXAMPLE_FIELDS:
            messages += _text(f"example_usage[{i}].{field}", example[field], None)
    return messages


def _text(name: str, value: Any, most: int | None) -> list[str]:
    """Violations of one text of at most so many words."""
    if not isinstance(value, str):
        return [f"{name} must be a text, got {value!r:.60}"]
    if not value or value.lower().rstrip(".") in SAYS_NOTHING:
        return [f"{name} says nothing ({value!r}): write it, or leave the field out"]
    try:
        value.encode()
    except UnicodeEncodeError:
        return [f"{name} is no valid Unicode: {value!r:.60}"]
    if most is not None and (words := len(value.split())) > most:
        shorter = f"say it in about {aim(most)}"
        return [f"{name} must have at most {most} words, got {words}: {shorter}"]
    return []


def _with_call_as_text(example: Any) -> Any:
    """A call is a text: what came as an object is written as JSON."""
    call = example.get("api_call") if isinstance(example, dict) else None
    if not isinstance(call, dict) or not call:
        return example
    return example | {"api_call": json.dumps(call, ensure_ascii=False)}


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stripped(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_stripped(part) for part in value]
    return value.strip() if isinstance(value, str) else value
