"""Rewards from the outcomes of tool calls.

    reward()                                        1.0: no error
    reward("no such invoice")                       0.0: the tool failed
    reward(TimeoutError())                          None: says nothing, and teaches nothing
    reward("1 validation error for call[pays]")     None: the arguments were wrong

A call without an error may still have used the wrong tool. An index that learns from errors avoids
tools that fail, and trusts those that do not. If wrong tools never fail, it learns nothing.
"""

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias

Outcome: TypeAlias = Callable[[Any], float | Awaitable[float | None] | None]

#: Messages of errors unrelated to the choice of the tool; proxies do not pass on their types.
SAYS_NOTHING = re.compile(
    r"validation errors? for |input validation error|error invoking tool "
    r"|invalid (arguments|params)|unexpected keyword argument"
    r"|missing \d+ required (positional|keyword-only) argument|unknown tool|not a valid tool"
    r"|tim(ed|e) ?-?out|rate ?limit|unauthori[sz]ed|forbidden|permission|access denied"
    r"|not authori[sz]ed|insufficient scope|request error|http error (401|403|407|408|429|5\d\d)"
    r"|connect(ion)? ?(\w*error|refused|reset|aborted|attempts failed)",
    re.IGNORECASE,
)
NOT_THE_TOOL = (PermissionError, TimeoutError, ConnectionError, NotImplementedError)
REFUSED = (401, 403, 407, 408, 429)  # HTTP: refused for the caller or the rate, not the request
#: The name of a tool in its error, which does not count.
NAMED = re.compile(r"^(\w+: )?(error calling )?tool '[^']*'", re.IGNORECASE)


def reward(error: BaseException | str | None = None) -> float | None:
    """Return the reward of a call: 1 without an error, 0 if the tool failed.

    Args:
      error: what went wrong: the exception, or its words if they are all that is left; None: the
        call gave no error.

    Returns:
      None, which teaches nothing, for what says nothing about the choice of the tool: wrong
      arguments, unknown names, time-outs, refused permissions, rate limits, and servers that cannot
      be reached or that fail themselves (HTTP 5xx). An error is known by its type and causes, and
      by its words (`SAYS_NOTHING`).
    """
    if error is None:
        return 1.0
    if isinstance(error, str):
        return None if SAYS_NOTHING.search(NAMED.sub("", error)) else 0.0
    for cause in causes(error):
        status = getattr(getattr(cause, "response", None), "status_code", None)
        refused = isinstance(status, int) and (status in REFUSED or status >= 500)
        if refused or isinstance(cause, NOT_THE_TOOL):
            return None
        if reward(f"{type(cause).__name__}: {cause}") is None:
            return None
    return 0.0


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it.

    Args:
      error: the error.
    """
    while error is not None:
        yield error
        error = error.__cause__
