"""A model as a stage of a pipeline: questions in, answers or problems out, all of them counted.

    timeout, rate_limit, connection, server_error    after the retries of `jaxret.llm.Endpoint`
    bad_request     this question alone, as a rule: too long, or stopped by a filter
    empty           answers without a word
    other           anything else

A problem of these kinds is not remembered, so that the same run asks again; every answer is, valid
or not, for it has been paid for.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple

from jaxret.llm.chat import Chat
from jaxret.llm.endpoint import Malformed, Messages, Schema, Unanswered

KINDS = {  # by the cause of an `Unanswered`
    "APITimeoutError": "timeout",
    "RateLimitError": "rate_limit",
    "APIConnectionError": "connection",
    "InternalServerError": "server_error",
    "BadRequestError": "bad_request",
    "Malformed": "empty",
}
HOPELESS = ("AuthenticationError", "PermissionDeniedError", "NotFoundError")


class Problem(NamedTuple):
    """Why a question has no valid answer."""

    kind: str
    reason: str  # as it is told to whoever answers next


class OutOfReach(RuntimeError):
    """The endpoint does not answer at all."""


class Price(NamedTuple):
    """Of a million tokens, in any currency; None where it is not known."""

    prompt: float | None = None
    completion: float | None = None

    def of(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """What so many tokens cost."""
        if self.prompt is None or self.completion is None:
            return None
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6


class Stage:
    """One model with its memory.

    ``problems`` holds how many there were of each kind; what the model costs is in ``chat.counts``.

    Args:
      chat: who is asked.
      patience: questions in a row that may stay without an answer; with the next one all stops.
      before: called before each question; what it raises stops all.
    """

    def __init__(
        self, chat: Chat, *, patience: int = 25, before: Callable[[], None] = lambda: None
    ):
        self.chat, self.problems = chat, Counter()
        self._patience, self._before = patience, before
        self._silent, self._lock = 0, Lock()

    def ask(
        self,
        questions: Sequence[Messages],
        title: str,
        *,
        schema: Schema | Sequence[Schema] | None = None,
    ) -> list[str | Problem]:
        """The answers in order; equal questions are asked once.

        Args:
          questions: what is asked.
          title: of the progress bar.
          schema: of the answers, for an endpoint that writes by one; one for all, or one a question
            (equal questions have equal ones).

        Raises:
          OutOfReach: the endpoint has lost the patience; what was answered is kept.
          Unanswered: the key or the model is wrong.
        """
        keys = [str(question) for question in questions]
        different = dict(zip(keys, questions, strict=True))
        if not (schema is None or isinstance(schema, dict)):
            schema = list(dict(zip(keys, schema, strict=True)).values())
        replies = self.chat.ask_all(
            list(different.values()),
            self._heard,
            schema=schema,
            title=title,
            before=self._before,
            failed=self._failed,
        )
        answers = dict(zip(different, replies, strict=True))
        return [self.noted(answers[key]) for key in keys]

    def noted(self, answer):
        """The answer itself; a problem is counted."""
        if isinstance(answer, Problem):
            self.problems[answer.kind] += 1
        return answer

    def _heard(self, text: str) -> str | Problem:
        if not text.strip():
            raise Malformed("an empty answer")
        with self._lock:
            self._silent = 0
        return text

    def _failed(self, error: Unanswered) -> str | Problem:
        cause = type(error.__cause__).__name__
        if cause in HOPELESS:
            raise error
        with self._lock:
            self._silent += 1
            silent = self._silent
        if silent > self._patience:
            raise OutOfReach(
                f"{silent} questions in a row have no answer; the last: {error}. What was answered "
                "is kept: the same command goes on"
            ) from error
        return Problem(kind=KINDS.get(cause, "other"), reason=str(error))


def without_thoughts(text: str) -> str:
    """What a reasoning model says in the end; empty if it never came to an end.

    The opening tag may be part of the model's template, and then only the closing one is seen.
    """
    _, closed, end = text.rpartition("</think>")
    answer = end if closed else text
    return "" if "<think>" in answer else answer.strip()
