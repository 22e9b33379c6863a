"""Asks language models behind an OpenAI-compatible endpoint, and stores their answers on disk.

    chat = Chat(Endpoint(model="qwen3:8b", base_url="http://localhost:11434/v1"), cache)
    order = chat.ask(messages, parse)

``parse`` turns the text of an answer into a value, or raises `Malformed`; then the question is
asked again. Answers that parse are stored under the hash of the question, so an interrupted run
asks no question twice. `Chat.weigh` returns the probabilities of a few words as the first token of
the answer, which costs one token instead of a sentence.

Time-outs, 429 and server errors are retried with growing pauses by the ``openai`` package (extra
``llm``).
"""

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from jaxret.runtime.files import write_whole
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require

T = TypeVar("T")
Messages: TypeAlias = Sequence[dict[str, str]]  # {"role": .., "content": ..}
Schema: TypeAlias = dict[str, Any]  # JSON schema of an answer
FORMATS = ("text", "json", "schema")
LIKELIEST = 20  # tokens whose probabilities an endpoint gives, at most


def object_schema(**fields: Schema) -> Schema:
    """Return the schema of an object with exactly these fields, in this order."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


class Malformed(ValueError):
    """An answer that cannot be used; the message says why."""


class Unanswered(RuntimeError):
    """A question without a valid answer after all attempts."""


class Endpoint(NamedTuple):
    """A model behind an endpoint and the settings of a request.

    ``format`` constrains the answer while it is generated: to nothing, to any JSON object, or to
    the schema that comes with a question (supported by llama.cpp, vLLM and OpenAI).
    """

    model: str
    base_url: str | None = None  # None: OpenAI's
    key_variable: str = "OPENAI_API_KEY"  # environment variable; a local server accepts any text
    temperature: float = 0.0
    max_tokens: int | None = None  # most tokens of an answer
    format: Literal["text", "json", "schema"] = "text"
    timeout: float = 60.0  # seconds per attempt
    retries: int = 4  # after time-outs and server errors
    attempts: int = 3  # number of attempts to get an answer that parses
    concurrency: int = 8  # questions at a time

    def options(self, schema: Schema | None) -> dict[str, Any]:
        """Return the options of a request, without the messages."""
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
    """An answer of the endpoint."""

    text: str
    usage: dict[str, int]  # tokens used
    first: dict[str, float]  # likeliest first tokens and their probabilities, if requested


def _first(choice) -> dict[str, float]:
    tokens = getattr(choice and choice.logprobs, "content", None)
    if not tokens:
        return {}
    return {one.token: math.exp(one.logprob) for one in tokens[0].top_logprobs}


class Chat:
    """An endpoint with a cache of answers.

    ``counts`` holds the numbers of questions ``asked``, of answers ``cached``, ``malformed`` and
    ``unanswered``, of ``retries``, and of ``prompt_tokens`` and ``completion_tokens`` as reported
    by the endpoint. ``cached_prompt_tokens`` and ``cached_completion_tokens`` are the tokens that
    cached answers used when they were generated.

    Args:
      endpoint: the model and the settings of its requests.
      cache: folder of answers; None stores none.

    Raises:
      ImportError: the package ``openai`` is not installed.
      ValueError: the variable of the key is not set, or a setting is out of range.
    """

    def __init__(self, endpoint: Endpoint, cache: Path | None = None):
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
        self.endpoint, self.counts = endpoint, Counter()
        self._cache, self._lock = cache, Lock()
        self._error = openai.OpenAIError
        self._hopeless = (  # every other question would fail too, as with a wrong key
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

    def ask(
        self, messages: Messages, parse: Callable[[str], T], *, schema: Schema | None = None
    ) -> T:
        """Return the parsed answer to one question.

        Args:
          messages: the question.
          parse: turns the text of an answer into a value, or raises `Malformed`.
          schema: schema of the answer, used if `Endpoint.format` is ``"schema"``.

        Raises:
          Unanswered: no attempt gave an answer that parses, or the endpoint refuses or fails. The
            message states the last error.
        """
        options = self.endpoint.options(schema)
        return self._cached(messages, options, lambda answer: parse(answer.text))

    def weigh(self, messages: Messages, words: Sequence[str]) -> dict[str, float]:
        """Return the probabilities of a few words as the first token of the answer.

        Capitals and blanks of tokens are ignored. A word that is not among the `LIKELIEST` most
        probable tokens has probability 0, so the probabilities need not sum to one.

        Raises:
          Unanswered: none of the words is among the likeliest tokens, the endpoint returns no
            probabilities, or it refuses or fails.
        """
        options = self.endpoint.options(None)
        options |= {"max_tokens": 1, "logprobs": True, "top_logprobs": LIKELIEST}
        return self._cached(messages, options, partial(_weights, words=words))

    def ask_all(
        self,
        questions: Sequence[Messages],
        parse: Callable[[str], T] | Sequence[Callable[[str], T]],
        *,
        schema: Schema | Sequence[Schema] | None = None,
        title: str = "asking",
        progress: bool = True,
        before: Callable[[], None] = lambda: None,
        failed: Callable[[Unanswered], T] | None = None,
    ) -> list[T | None]:
        """Return the parsed answers to many questions, asked `Endpoint.concurrency` at a time.

        Args:
          questions: n questions.
          parse: turns the text of an answer into a value, or raises `Malformed`; one function for
            all questions, or n functions.
          schema: schema of the answers, used if `Endpoint.format` is ``"schema"``; one for
              all questions, or n schemas.
          title: title of the progress bar.
          progress: whether to show the progress bar.
          before: called before each question; an exception that it raises stops all questions.
          failed: returns the value for a question without a valid answer, or raises to stop all
            questions. None: the value is None.

        Raises:
          Unanswered: no question can be answered, as with a wrong key, and ``failed`` is None.
        """
        n = len(questions)
        parsers = [parse] * n if callable(parse) else parse
        schemas = [schema] * n if schema is None or isinstance(schema, dict) else schema
        jobs = [
            partial(self.ask, question, parser, schema=form)
            for question, parser, form in zip(questions, parsers, schemas, strict=True)
        ]
        return self._side_by_side(jobs, title, progress, before, failed)

    def weigh_all(
        self,
        questions: Sequence[Messages],
        words: Sequence[str],
        *,
        title: str = "weighing",
        progress: bool = True,
    ) -> list[dict[str, float] | None]:
        """Return the probabilities of a few words as the first token of each of many answers.

        Args:
          questions: n questions.
          words: lower-case words.
          title: title of the progress bar.
          progress: whether to show the progress bar.

        Returns:
          n dicts from word to probability; None for a question without a valid answer.

        Raises:
          Unanswered: no question can be answered, as with a wrong key.
        """
        jobs = [partial(self.weigh, question, words) for question in questions]
        return self._side_by_side(jobs, title, progress)

    def _side_by_side(self, jobs, title, progress, before=lambda: None, failed=None):
        def one(job):
            before()
            try:
                return job()
            except Unanswered as error:
                if failed is not None:
                    return failed(error)
                if isinstance(error.__cause__, self._hopeless):
                    raise
                return None

        with ThreadPoolExecutor(self.endpoint.concurrency) as pool:
            done = pool.map(one, jobs)
            bar = Progress(done, total=len(jobs), desc=title, disable=not progress)
            try:
                return list(bar)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _cached(
        self, messages: Messages, options: dict[str, Any], parse: Callable[[Answer], T]
    ) -> T:
        """Return the cached answer if it parses, and ask otherwise."""
        name = self._name(messages, options)
        path = None if self._cache is None else self._cache / f"{name}.json"
        if path is not None and path.exists():
            try:
                kept = json.loads(path.read_text())
                used = kept.get("usage", {})
                parsed = parse(Answer(kept["answer"], used, kept.get("first", {})))
                self._count(cached=1, **{f"cached_{name}": used[name] for name in used})
                return parsed
            except (Malformed, KeyError, json.JSONDecodeError):
                path.unlink()  # damaged, or written for an older parser
        last: Exception | None = None
        for _ in range(self.endpoint.attempts):
            answer = self._fresh(messages, options)
            try:
                parsed = parse(answer)
            except Malformed as error:
                last = error
                self._count(malformed=1)
                continue
            if path is not None:
                kept = {"messages": list(messages), "answer": answer.text, "usage": answer.usage}
                if answer.first:
                    kept["first"] = answer.first
                write_whole(path, json.dumps(kept))
            return parsed
        self._count(unanswered=1)
        raise Unanswered(
            f"{self.endpoint.model}: no valid answer in {self.endpoint.attempts} attempts: {last}"
        ) from last

    def _fresh(self, messages: Messages, options: dict[str, Any]) -> Answer:
        """Send one request."""
        self._count(asked=1)
        model = self.endpoint.model
        try:
            response = self._create(model=model, messages=list(messages), **options)
            answer = response.parse()
        except (self._error, ValueError) as error:  # ValueError: a body that is not JSON
            self._count(unanswered=1)
            where = self.endpoint.base_url or "api.openai.com"
            raise Unanswered(f"{model} at {where}: {error}") from error
        usage: dict[str, int] = {}
        if answer.usage is not None:
            usage = {
                "prompt_tokens": answer.usage.prompt_tokens,
                "completion_tokens": answer.usage.completion_tokens,
            }
        if response.retries_taken:
            self._count(retries=response.retries_taken)
        self._count(**usage)
        choice = answer.choices[0] if answer.choices else None
        message = choice and choice.message
        text = (message and (message.content or message.refusal)) or ""
        return Answer(text, usage, _first(choice))

    def _name(self, messages: Messages, options: dict[str, Any]) -> str:
        request = [self.endpoint.model, self.endpoint.base_url, options, list(messages)]
        return hashlib.sha256(json.dumps(request).encode()).hexdigest()

    def _count(self, **more: int) -> None:
        with self._lock:
            self.counts.update(more)


def _weights(answer: Answer, words: Sequence[str]) -> dict[str, float]:
    if not answer.first:
        raise Malformed("the endpoint gives no probabilities of tokens (logprobs)")
    weights = dict.fromkeys(words, 0.0)
    for token, probability in answer.first.items():
        if (word := token.strip().lower()) in weights:
            weights[word] += probability
    if not any(weights.values()):
        raise Malformed(f"none of {list(words)} is among the likeliest tokens: {answer.first}")
    return weights
