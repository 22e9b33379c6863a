"""Stores the model's answers about DeskBank in the repository, for use without the model.

    python -m experiments.local_llm answers     restores these answers to the cache
    python -m experiments.local_llm.answers     adds new answers from the cache

An answer is stored under the hash of its question (`jaxret.llm.Chat`), so it serves the same
question to the same endpoint, that of ``start`` with its default port. Answers about other data
sets are not stored, since their texts have other licences. Probabilities of single words are stored
in tables instead (`experiments.real_judge`).
"""

import gzip
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from jaxret import data
from jaxret.encoders import cache_directory
from jaxret.runtime.files import existing, write_whole

FILE = Path(__file__).with_name("answers.jsonl.gz")
FIELDS = ("answer", "usage")
LONG = 15  # minimum words of a sentence of an answer that identifies a follow-up question


def unpack(file: Path, cache: Path) -> int:
    """Write missing answers from a file to the cache; return their number."""
    existing(file, "answers of a language model")
    try:
        rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
        new = [row for row in rows if not (cache / f"{row['name']}.json").exists()]
        texts = [json.dumps({field: row[field] for field in FIELDS}) for row in new]
    except (OSError, EOFError, KeyError, ValueError) as error:
        raise ValueError(f"{file} holds no answers ({error}): get it again") from error
    for row, text in zip(new, texts, strict=True):
        write_whole(cache / f"{row['name']}.json", text)
    return len(new)


def pack(cache: Path, texts: Collection[str], file: Path) -> int:
    """Add answers to questions that contain one of the texts to a file; return their number.

    Answers to questions about sentences of those answers are added, too. The same answers make the
    same file, byte by byte.
    """
    rows: dict[str, dict[str, Any]] = {}
    if file.exists():
        lines = gzip.decompress(file.read_bytes()).splitlines()
        rows = {row["name"]: row for row in map(json.loads, lines)}
    waiting = {path.stem: json.loads(path.read_text()) for path in sorted(cache.glob("*.json"))}
    waiting = {name: kept for name, kept in waiting.items() if "first" not in kept}
    held = {*texts, *(text for row in rows.values() for text in sentences(row["answer"]))}
    while new := [name for name, kept in waiting.items() if asks_about(kept, held)]:
        for name in new:
            kept = waiting.pop(name)
            rows[name] = {"name": name} | {field: kept[field] for field in FIELDS}
            held |= sentences(kept["answer"])
    lines = [json.dumps(rows[name], ensure_ascii=False) + "\n" for name in sorted(rows)]
    part = file.with_name(f".{file.name}")
    part.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))
    part.replace(file)
    return len(rows)


def asks_about(kept: dict[str, Any], texts: Collection[str]) -> bool:
    """Return whether the question of a stored answer contains one of the texts."""
    question = "\n".join(message["content"] for message in kept.get("messages", ()))
    return any(text in question for text in texts)


def sentences(answer: str) -> set[str]:
    """Return the long texts of an answer: those of its JSON object, or the whole answer."""
    try:
        content = json.loads(answer)
    except json.JSONDecodeError:
        content = answer
    texts = content.values() if isinstance(content, dict) else [content]
    return {text for text in texts if isinstance(text, str) and len(text.split()) >= LONG}


def deskbank_texts() -> set[str]:
    """Return DeskBank's queries and tool descriptions, as quoted in questions."""
    bank = data.load("deskbank", part="all")
    documents = [document for document in bank.documents if isinstance(document, dict)]
    texts = (document[field] for document in documents for field in ("description", "terse"))
    return {*(json.dumps(text, ensure_ascii=False) for text in texts), *bank.queries}


if __name__ == "__main__":
    print(f"{FILE}: {pack(cache_directory() / 'llm', deskbank_texts(), FILE):,} answers")
