"""Questions to a language model behind an OpenAI-compatible endpoint.

    chat = Chat(Endpoint(model="qwen3:8b", base_url="http://localhost:11434/v1"), cache)
    order = chat.ask(messages, parse)

``parse`` turns the text of an answer into what the caller wants, or raises `Malformed`; then the
question is asked again, so that nothing which does not parse gets any further. Answers that do are
kept on disk under the hash of the question: a run that was killed asks nothing twice. Time-outs,
429 and server errors are retried with growing pauses by the ``openai`` package (extra ``llm``).
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeAlias, TypeVar

from jaxret.files import write_whole
from jaxret.progress import Progress
from jaxret.validate import require

Messages: TypeAlias = Sequence[dict[str, str]]  # {"role": .., "content": ..}
T = TypeVar("T")


class Malformed(ValueError):
    """An answer that does not say what was asked; its message says why."""


class Unanswered(RuntimeError):
    """A question that stayed without a valid answer after all attempts."""


class Endpoint(NamedTuple):
    """Who is asked, and how."""

    model: str
    base_url: str | None = None  # None is OpenAI's own
    key_variable: str = "OPENAI_API_KEY"  # of the environment; a local server wants any text
    temperature: float = 0.0
    max_tokens: int | None = None  # of an answer
    json: bool = False  # asks for a JSON object
    timeout: float = 60.0  # seconds an attempt
    retries: int = 4  # after an error of the transport
    attempts: int = 3  # at an answer that parses
    concurrency: int = 8  # questions at a time


class Chat:
    """An endpoint with a memory.

    ``counts`` holds how many questions were ``asked`` and how many answers were ``cached``,
    ``malformed`` or ``unanswered``, the ``retries`` after errors of the transport, and the
    ``prompt_tokens`` and ``completion_tokens`` that the endpoint says it used; those that an answer
    from the cache took when it was asked for are ``cached_prompt_tokens`` and so on.

    Args:
      endpoint: who is asked.
      cache: folder of answers; None keeps none.

    Raises:
      ImportError: without the package ``openai``.
      ValueError: if the variable of the key is not set, or a setting is out of its range.
    """

    def __init__(self, endpoint: Endpoint, cache: Path | None = None):
        for name in ("retries", "temperature"):
            require(name, getattr(endpoint, name), ">= 0", lambda x: x >= 0)
        for name in ("attempts", "concurrency"):
            require(name, getattr(endpoint, name), ">= 1", lambda x: x >= 1)
        require("timeout", endpoint.timeout, "> 0 seconds", lambda x: x > 0)
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
        self._fatal = (
            openai.AuthenticationError,
            openai.PermissionDeniedError,
            openai.NotFoundError,
            openai.BadRequestError,
        )
        self._error = openai.OpenAIError
        client = openai.OpenAI(
            api_key=key,
            base_url=endpoint.base_url,
            timeout=endpoint.timeout,
            max_retries=endpoint.retries,
        )
        self._create: Callable[..., Any] = client.chat.completions.with_raw_response.create

    def ask(self, messages: Messages, parse: Callable[[str], T]) -> T:
        """The parsed answer to one question.

        Raises:
          Unanswered: if no attempt gave an answer that parses, or the endpoint refuses or fails:
            says what came last.
        """
        path = None if self._cache is None else self._cache / f"{self._name(messages)}.json"
        if path is not None and path.exists():
            try:
                kept = json.loads(path.read_text())
                parsed = parse(kept["answer"])
                used = kept.get("usage", {})
                self._count(cached=1, **{f"cached_{name}": used[name] for name in used})
                return parsed
            except (Malformed, KeyError, json.JSONDecodeError):
                path.unlink()  # torn, or of an older parser: asked again
        last: Exception | None = None
        for _ in range(self.endpoint.attempts):
            text, usage = self._complete(messages)
            try:
                parsed = parse(text)
            except Malformed as error:
                last = error
                self._count(malformed=1)
                continue
            if path is not None:
                kept = {"messages": list(messages), "answer": text, "usage": usage}
                write_whole(path, json.dumps(kept))
            return parsed
        self._count(unanswered=1)
        raise Unanswered(
            f"{self.endpoint.model}: no valid answer in {self.endpoint.attempts} attempts: {last}"
        ) from last

    def ask_all(
        self,
        questions: Sequence[Messages],
        parse: Callable[[str], T] | Sequence[Callable[[str], T]],
        *,
        title: str = "asking",
        progress: bool = True,
        before: Callable[[], None] = lambda: None,
        failed: Callable[[Unanswered], T] | None = None,
    ) -> list[T | None]:
        """The parsed answers to many questions, `Endpoint.concurrency` at a time.

        None stands for a question without a valid answer (``counts["unanswered"]``); what makes
        every question hopeless, such as a wrong key, is raised.

        Args:
          questions: n of them.
          parse: one for all, or one a question.
          title: of the progress bar.
          progress: whether to show it.
          before: called before each question; what it raises stops them all.
          failed: gives what stands for a question without a valid answer, whatever the reason, or
            raises to stop them all.
        """
        parsers = [parse] * len(questions) if callable(parse) else parse

        def one(question, parser):
            before()
            try:
                return self.ask(question, parser)
            except Unanswered as error:
                if failed is not None:
                    return failed(error)
                if isinstance(error.__cause__, self._fatal):
                    raise
                return None

        with ThreadPoolExecutor(self.endpoint.concurrency) as pool:
            jobs = pool.map(one, questions, parsers)
            bar = Progress(jobs, total=len(questions), desc=title, disable=not progress)
            try:
                return list(bar)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _complete(self, messages: Messages) -> tuple[str, dict[str, int]]:
        """The text of an answer and the tokens it took."""
        end = self.endpoint
        options: dict[str, Any] = {"temperature": end.temperature}
        if end.max_tokens is not None:
            options["max_tokens"] = end.max_tokens
        if end.json:
            options["response_format"] = {"type": "json_object"}
        self._count(asked=1)
        try:
            response = self._create(model=end.model, messages=list(messages), **options)
            answer = response.parse()
        except (self._error, ValueError) as error:  # ValueError: a body that is not JSON
            self._count(unanswered=1)
            where = end.base_url or "api.openai.com"
            raise Unanswered(f"{end.model} at {where}: {error}") from error
        if response.retries_taken:
            self._count(retries=response.retries_taken)
        usage: dict[str, int] = {}
        if answer.usage is not None:
            usage = {
                "prompt_tokens": answer.usage.prompt_tokens,
                "completion_tokens": answer.usage.completion_tokens,
            }
            self._count(**usage)
        message = answer.choices[0].message if answer.choices else None
        return (message and (message.content or message.refusal)) or "", usage

    def _name(self, messages: Messages) -> str:
        end = self.endpoint
        asked = [end.model, end.base_url, end.temperature, end.max_tokens, end.json, list(messages)]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()

    def _count(self, **more: int) -> None:
        with self._lock:
            self.counts.update(more)
