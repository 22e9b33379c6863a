"""An OpenAI-compatible endpoint: who is asked, how, and what one answer brings back.

Time-outs, 429 and server errors are retried with growing pauses by the ``openai`` package (extra
``llm``).
"""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from jaxret.runtime.validate import require

Messages: TypeAlias = Sequence[dict[str, str]]  # {"role": .., "content": ..}
Schema: TypeAlias = dict[str, Any]  # JSON schema of an answer
FORMATS = ("text", "json", "schema")
LIKELIEST = 20  # tokens whose probabilities an endpoint gives, at most


def object_schema(**fields: Schema) -> Schema:
    """The form of an object that has these fields, all of them and in this order."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


class Malformed(ValueError):
    """An answer that does not say what was asked; its message says why."""


class Unanswered(RuntimeError):
    """A question that stayed without a valid answer after all attempts."""


class Endpoint(NamedTuple):
    """Who is asked, and how.

    ``format`` is what the endpoint holds an answer to while it is written: nothing, any JSON
    object, or the schema that comes with a question (llama.cpp, vLLM and OpenAI can).
    """

    model: str
    base_url: str | None = None  # None is OpenAI's own
    key_variable: str = "OPENAI_API_KEY"  # of the environment; a local server wants any text
    temperature: float = 0.0
    max_tokens: int | None = None  # of an answer
    format: Literal["text", "json", "schema"] = "text"
    timeout: float = 60.0  # seconds an attempt
    retries: int = 4  # after an error of the transport
    attempts: int = 3  # at an answer that parses
    concurrency: int = 8  # questions at a time

    def options(self, schema: Schema | None) -> dict[str, Any]:
        """What goes out beside the messages."""
        options: dict[str, Any] = {"temperature": self.temperature}
        if self.max_tokens is not None:
            options["max_tokens"] = self.max_tokens
        if self.format == "json":
            options["response_format"] = {"type": "json_object"}
        if self.format == "schema" and schema is not None:
            named = {"name": "answer", "strict": True, "schema": schema}
            options["response_format"] = {"type": "json_schema", "json_schema": named}
        return options


class Answer(NamedTuple):
    """What came back."""

    text: str
    usage: dict[str, int]  # tokens that it took
    first: dict[str, float]  # probability of the likeliest first tokens, where they were asked for
    retries: int  # after errors of the transport


class Connection:
    """An endpoint that can be called.

    Raises:
      ImportError: without the package ``openai``.
      ValueError: if the variable of the key is not set, or a setting is out of its range.
    """

    def __init__(self, endpoint: Endpoint):
        for name in ("retries", "temperature"):
            require(name, getattr(endpoint, name), ">= 0", lambda x: x >= 0)
        for name in ("attempts", "concurrency"):
            require(name, getattr(endpoint, name), ">= 1", lambda x: x >= 1)
        require("timeout", endpoint.timeout, "> 0 seconds", lambda x: x > 0)
        require("format", endpoint.format, f"one of {FORMATS}", FORMATS.__contains__)
        try:
            import openai
        except ImportError as error:
            raise ImportError(
                "a language model is asked through the package openai: install jaxret[llm]"
            ) from error
        key = os.environ.get(endpoint.key_variable, "")
        if not key:
            raise ValueError(
                f"no key for {endpoint.base_url or 'api.openai.com'}: set the variable "
                f"{endpoint.key_variable} (to any text for a local server)"
            )
        self._endpoint = endpoint
        self._error = openai.OpenAIError
        self._fatal = (
            openai.AuthenticationError,
            openai.PermissionDeniedError,
            openai.NotFoundError,
            openai.BadRequestError,
        )
        client = openai.OpenAI(
            api_key=key,
            base_url=endpoint.base_url,
            timeout=endpoint.timeout,
            max_retries=endpoint.retries,
        )
        self._create: Callable[..., Any] = client.chat.completions.with_raw_response.create

    def __call__(self, messages: Messages, options: dict[str, Any]) -> Answer:
        """Asks once.

        Raises:
          Unanswered: if the endpoint refuses or fails.
        """
        end = self._endpoint
        try:
            response = self._create(model=end.model, messages=list(messages), **options)
            answer = response.parse()
        except (self._error, ValueError) as error:  # ValueError: a body that is not JSON
            where = end.base_url or "api.openai.com"
            raise Unanswered(f"{end.model} at {where}: {error}") from error
        usage: dict[str, int] = {}
        if answer.usage is not None:
            usage = {
                "prompt_tokens": answer.usage.prompt_tokens,
                "completion_tokens": answer.usage.completion_tokens,
            }
        choice = answer.choices[0] if answer.choices else None
        message = choice and choice.message
        return Answer(
            text=(message and (message.content or message.refusal)) or "",
            usage=usage,
            first=_first(choice),
            retries=response.retries_taken,
        )

    def hopeless(self, error: Unanswered) -> bool:
        """Whether every other question would fare as this one did: a wrong key, for example."""
        return isinstance(error.__cause__, self._fatal)


def _first(choice) -> dict[str, float]:
    tokens = getattr(choice and choice.logprobs, "content", None)
    if not tokens:
        return {}
    return {one.token: math.exp(one.logprob) for one in tokens[0].top_logprobs}
