"""Reads ids, texts and labels of a row, with errors that name its file and line."""

from typing import Any


def id_of(where: str, value: Any) -> str:
    """Return an id as a string.

    Args:
      where: file and line, for the error message.
      value: a string, or a whole number, which becomes a string.

    Raises:
      ValueError: if the value is anything else, or blank.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(
            f"{where}: an id must be a string that is not blank, or a whole number, "
            f"got {value!r:.60}"
        )
    return value


def text_of(where: str, name: str, value: Any) -> str:
    """Return the text of a document, in which null is an empty text.

    Args:
      where: file and line, for the error message.
      name: id of the document, for the error message.
      value: a string or None.

    Raises:
      ValueError: if the value is anything else.
    """
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{where}: the text of {name!r} must be a string, got {value!r:.60}")
    return value or ""


def query_of(where: str, name: str, value: Any) -> str:
    """Return the text of a query.

    Args:
      where: file and line, for the error message.
      name: id of the query, for the error message.
      value: a string that is not blank.

    Raises:
      ValueError: if the value is anything else.
    """
    if not isinstance(value, str) or not value.strip():
        raise ValueError(
            f"{where}: the text of query {name!r} must be a string that is not blank, "
            f"got {value!r:.60}; leave the query out, or write what was asked"
        )
    return value


def labels_of(where: str, name: str, value: Any) -> tuple[str, ...]:
    """Return the labels of a query.

    Args:
      where: file and line, for the error message.
      name: id of the query, for the error message.
      value: list of ids.

    Raises:
      ValueError: if the value is not a list with an id, such as a single string, whose letters
        would be read as ids.
    """
    if not isinstance(value, list) or not value:
        listed = [value] if isinstance(value, str | int) else ["tool_id"]
        raise ValueError(
            f"{where}: the labels of query {name!r} must be a list of tool ids, such as "
            f"{listed}, got {value!r:.60}"
        )
    return tuple(id_of(f"{where}, labels of query {name!r}", one) for one in value)
