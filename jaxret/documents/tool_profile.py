"""Defines the tool profile that expansion adds to a document, and its rules (Tool-REX, 2.3).

    function        what the tool does                       required
    tags            search terms                             required
    when_to_use     in which situations
    limitation      what it cannot do, or needs
    example_usage   queries with the calls that answer them

A profile states only what the documentation supports, so the last three fields are optional. The
text of the paper calls two fields function_description and limitations; its data and prompts use
the names above, and so does `jaxret.data.templates`.

The template ``expanded`` renders the original and the profile without ``example_usage``, as in the
paper, which found retrieval to be better without it; `experiments.document_ablation` tests all five
fields. (The sentence of the paper on this says ``when_to_use``, but its data and its ablation show
that ``example_usage`` was dropped.)
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
#: Matches sentences that say what the documentation lacks, where the field should be left out.
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
    """Bounds of a profile; all but those of limitation and of tag words are the paper's."""

    text_words: int = 20  # function and when_to_use must have fewer
    limitation_words: int = 40  # limitation must have fewer
    tags_least: int = 3
    tags_most: int = 5
    tag_words: int = 5  # at most, in one tag
    examples: int = 2  # at most


def aim(words: int) -> int:
    """Return the length to ask a language model for, below the limit as models miscount words."""
    return max(1, 2 * words // 3)


def longest(rules: Rules) -> dict[str, int]:
    """Return the largest number of words of each text of a profile."""
    words = {"function": rules.text_words, "when_to_use": rules.text_words}
    words["limitation"] = rules.limitation_words
    return {field: limit - 1 for field, limit in words.items()}


def schema(rules: Rules) -> Schema:
    """Return the JSON schema of a profile; it bounds the fields, not the numbers of words."""
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
    """Correct trivial faults of a profile, so that no model has to be asked again.

    Strip texts, lower-case tags and remove repeated ones, remove fields that are null or only
    say what the documentation lacks, and write calls that are objects as JSON.
    """
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
    """List the violations of the rules in a profile, one message each.

    Args:
      profile: the value to check; anything but a dict is one violation.
      rules: the bounds.
    """
    if not isinstance(profile, dict):
        return [f"the profile must be a JSON object, got {profile!r:.60}"]
    messages = [f"{field} is missing" for field in REQUIRED if field not in profile]
    messages += [
        f"{field} is not a field of a profile; these are: {', '.join(FIELDS)}"
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
    """Return the document with the fields of the profile in the order of `FIELDS`."""
    fields = document if isinstance(document, dict) else {"documentation": document}
    kept = {field: profile[field] for field in FIELDS if field in profile}
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
    """List the violations of a text with a largest number of words."""
    if not isinstance(value, str):
        return [f"{name} must be a text, got {value!r:.60}"]
    if not value or value.lower().rstrip(".") in SAYS_NOTHING:
        return [f"{name} says nothing ({value!r}): write it, or leave the field out"]
    try:
        value.encode()
    except UnicodeEncodeError:
        return [f"{name} is not valid Unicode: {value!r:.60}"]
    if most is not None and (words := len(value.split())) > most:
        shorter = f"say it in about {aim(most)}"
        return [f"{name} must have at most {most} words, got {words}: {shorter}"]
    return []


def _with_call_as_text(example: Any) -> Any:
    """Write a call that is an object as JSON."""
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
