"""Questions to a language model behind an OpenAI-compatible endpoint.

    chat = Chat(Endpoint(model="qwen3:8b", base_url="http://localhost:11434/v1"), cache)
    order = chat.ask(messages, parse)

``parse`` turns the text of an answer into what the caller wants, or raises `Malformed`; then the
question is asked again, so that nothing which does not parse gets any further. Answers that do are
kept on disk under the hash of the question: a run that was killed asks nothing twice. Where a word
is wanted, `Chat.weigh` asks how probable each of a few is: one token in place of a sentence.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from jaxret.llm.endpoint import (
    LIKELIEST,
    Answer,
    Connection,
    Endpoint,
    Malformed,
    Messages,
    Schema,
    Unanswered,
)
from jaxret.runtime.files import write_whole
from jaxret.runtime.progress import Progress

T = TypeVar("T")


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
      ImportError, ValueError: see `jaxret.llm.endpoint.Connection`.
    """

    def __init__(self, endpoint: Endpoint, cache: Path | None = None):
        self.endpoint, self.counts = endpoint, Counter()
        self._call, self._cache, self._lock = Connection(endpoint), cache, Lock()

    def ask(
        self, messages: Messages, parse: Callable[[str], T], *, schema: Schema | None = None
    ) -> T:
        """The parsed answer to one question.

        Args:
          messages: the question.
          parse: see above.
          schema: of an answer, for an endpoint that writes by one (`Endpoint.format`).

        Raises:
          Unanswered: if no attempt gave an answer that parses, or the endpoint refuses or fails:
            says what came last.
        """
        options = self.endpoint.options(schema)
        return self._remembered(messages, options, lambda answer: parse(answer.text))

    def weigh(self, messages: Messages, words: Sequence[str]) -> dict[str, float]:
        """How probable each of a few words is as the beginning of the answer.

        A token counts for the word that it is, whatever its capitals and blanks; words that are not
        among the likeliest `LIKELIEST` tokens have probability 0. They need not sum to one.

        Raises:
          Unanswered: as `ask`; also if none of the words is among the likeliest tokens, or the
            endpoint gives no probabilities.
        """
        options = self.endpoint.options(None)
        options |= {"max_tokens": 1, "logprobs": True, "top_logprobs": LIKELIEST}
        return self._remembered(messages, options, partial(_weights, words=words))

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
        """The parsed answers to many questions, `Endpoint.concurrency` at a time.

        None stands for a question without a valid answer (``counts["unanswered"]``); what makes
        every question hopeless, such as a wrong key, is raised.

        Args:
          questions: n of them.
          parse: one for all, or one a question.
          schema: of the answers, as in `ask`; one for all, or one a question.
          title: of the progress bar.
          progress: whether to show it.
          before: called before each question; what it raises stops them all.
          failed: gives what stands for a question without a valid answer, whatever the reason, or
            raises to stop them all.
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
        before: Callable[[], None] = lambda: None,
    ) -> list[dict[str, float] | None]:
        """`weigh` for many questions, as `ask_all` asks them."""
        jobs = [partial(self.weigh, question, words) for question in questions]
        return self._side_by_side(jobs, title, progress, before, None)

    def _side_by_side(self, jobs, title, progress, before, failed):
        def one(job):
            before()
            try:
                return job()
            except Unanswered as error:
                if failed is not None:
                    return failed(error)
                if self._call.hopeless(error):
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

    def _remembered(
        self, messages: Messages, options: dict[str, Any], parse: Callable[[Answer], T]
    ) -> T:
        """What was answered before, or is now."""
        name = self._name(messages, options)
        path = None if self._cache is None else self._cache / f"{name}.json"
        if path is not None and path.exists():
            try:
                kept = json.loads(path.read_text())
                used = kept.get("usage", {})
                parsed = parse(Answer(kept["answer"], used, kept.get("first", {}), 0))
                self._count(cached=1, **{f"cached_{name}": used[name] for name in used})
                return parsed
            except (Malformed, KeyError, json.JSONDecodeError):
                path.unlink()  # torn, or of an older parser: asked again
        last: Exception | None = None
        for _ in range(self.endpoint.attempts):
            answer = self._asked(messages, options)
            try:
                parsed = parse(answer)
            except Malformed as error:
                last = error
                self._count(malformed=1)
                continue
            if path is not None:
                kept: dict[str, Any] = {
                    "messages": list(messages),
                    "answer": answer.text,
                    "usage": answer.usage,
                }
                if answer.first:
                    kept["first"] = answer.first
                write_whole(path, json.dumps(kept))
            return parsed
        self._count(unanswered=1)
        raise Unanswered(
            f"{self.endpoint.model}: no valid answer in {self.endpoint.attempts} attempts: {last}"
        ) from last

    def _asked(self, messages: Messages, options: dict[str, Any]) -> Answer:
        self._count(asked=1)
        try:
            answer = self._call(messages, options)
        except Unanswered:
            self._count(unanswered=1)
            raise
        if answer.retries:
            self._count(retries=answer.retries)
        self._count(**answer.usage)
        return answer

    def _name(self, messages: Messages, options: dict[str, Any]) -> str:
        asked = [self.endpoint.model, self.endpoint.base_url, options, list(messages)]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()

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
