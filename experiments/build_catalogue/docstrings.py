"""Condenses docstrings and HTML documentation to their first paragraphs, as plain text."""

import re
from html.parser import HTMLParser

from jaxret.generation.queries import shorten

WORDS = 80  # maximum words of a description
_ROLE = re.compile(r":[\w:]+:`~?([^`<]+?)(?:\s*<[^`]*>)?`")  # :func:`numpy.sort`
_QUOTED = re.compile(r"`{1,2}([^`]+)`{1,2}_{0,2}")
_CALL = re.compile(r"^[\w.]+\(.*\)(\s*->.*)?$", re.DOTALL)  # the signature of a builtin
_SECTION = re.compile(r"^\s*[-=~]{3,}\s*$", re.MULTILINE)
_PARAMETER = re.compile(r"^(\*{0,2}\w+(?:, *\*{0,2}\w+)*)(?: *: *(.*))?$")


def condense(docstring: str, *, words: int = WORDS) -> str:
    """Return the text before the first section, without markup, notices and examples."""
    kept = []
    for paragraph in re.split(r"\n\s*\n", docstring.strip()):
        first = paragraph.lstrip()
        if _SECTION.search(paragraph):
            break
        indented = first != paragraph
        if not (indented or first.startswith(("..", ">>>")) or _CALL.match(first)):
            kept.append(paragraph)
    text = _QUOTED.sub(r"\1", _ROLE.sub(r"\1", " ".join(" ".join(kept).split())))
    return shorten(text.replace("::", ":"), words)


def parameters(docstring: str) -> dict[str, bool]:
    """Return whether each parameter of a NumPy-style section 'Parameters' is required, by name.

    Used for objects whose signature cannot be inspected. A parameter is optional if its type says
    'optional' or 'default'.
    """
    lines = docstring.splitlines()
    heads = [i for i, line in enumerate(lines[1:]) if _SECTION.fullmatch(line)]
    begin = next((i for i in heads if lines[i].strip() == "Parameters"), None)
    if begin is None:
        return {}
    required_by_name: dict[str, bool] = {}
    for line in lines[begin + 2 : min((i for i in heads if i > begin), default=len(lines))]:
        if match := _PARAMETER.match(line):
            names, kind = match.groups()
            required = not re.search(r"optional|default", kind or "")
            required_by_name |= {
                name.strip(): required for name in names.split(",") if "*" not in name
            }
    return required_by_name


def strip_html(text: str) -> str:
    """Return the text of an HTML fragment without notes, important notices and examples."""
    reader = _Text()
    reader.feed(text)
    reader.close()
    return " ".join("".join(reader.pieces).split())


class _Text(HTMLParser):
    ASIDE = ("note", "important", "examples")
    BLOCK = ("p", "li", "ul", "ol", "br", "h1", "h2", "h3", "dt", "dd", "dl", "div")

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._aside = 0

    def handle_starttag(self, tag, attrs):
        self._aside += tag in self.ASIDE
        if tag in self.BLOCK:
            self.pieces.append(" ")

    def handle_endtag(self, tag):
        self._aside -= tag in self.ASIDE and self._aside > 0
        if tag in self.BLOCK:
            self.pieces.append(" ")

    def handle_data(self, data):
        if not self._aside:
            self.pieces.append(data)
