"""How a language model is asked whether a tool fits a query, and in which tokens (Tool-REX, B.3).

A conversation in Qwen's form, with the thinking left empty, so that the answer is the next token:

    <|im_start|>system .. <|im_end|> <|im_start|>user .. query .. document <|im_end|>
    <|im_start|>assistant <think> </think>

The words are in ``prompts/`` and are ours. The paper's Figure 8 has no instruction, its code puts
one in front of the query, Qwen3's own rerankers give it a line: all three can be had (``place``).

A document is cut before it is put in, so nothing that follows it is ever lost; Tool-REX's code
cuts the whole, and loses the question's end. Of what is asked, the part up to the document
is the query's (`Verdict.heads`) and the rest the document's (`Verdict.tails`): each is tokenised
once, and put together they are the tokens of the whole, since a line ends between them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from tokenizers import Tokenizer

from jaxret.encoders import TASK
from jaxret.llm import Prompt, load_prompt
from jaxret.runtime.validate import require

PROMPTS = Path(__file__).parent / "prompts"
#: Where the instruction stands: in front of the query, or on a line of its own.
PLACES = {"query": "tool_rank.txt", "line": "tool_rank_instructed.txt"}
THINKING = "<|im_start|>assistant\n<think>\n\n</think>\n\n"

Place = Literal["query", "line"]


class Verdict(NamedTuple):
    """The question, with a tokenizer. Make it with `verdict`."""

    tokenizer: Tokenizer
    prompt: Prompt
    answers: tuple[str, str]
    instruction: str
    query_limit: int
    document_limit: int

    def text(self, query: str, document: str) -> str:
        """All that the model sees, nothing cut."""
        values = {"query": query.strip(), "document": document.strip()}
        values |= dict(zip(("yes", "no"), self.answers, strict=True))
        if "instruction" in self.prompt.placeholders:
            values["instruction"] = self.instruction
        elif self.instruction:
            values["query"] = f"{self.instruction} {values['query']}"
        messages = self.prompt.messages(**values)
        turns = (f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages)
        return "".join(turns) + THINKING

    def heads(self, queries: Sequence[str]) -> list[list[int]]:
        """Tokens up to the document, of each query."""
        cut = self._cut(queries, self.query_limit)
        return self._tokens([self.text(query, _HOLE).partition(_HOLE)[0] for query in cut])

    def tails(self, documents: Sequence[str]) -> list[list[int]]:
        """Tokens from the document on."""
        end = self.text("", _HOLE).partition(_HOLE)[2]
        return self._tokens([one + end for one in self._cut(documents, self.document_limit)])

    @property
    def words(self) -> tuple[int, int]:
        """The tokens of the answers, for `jaxret.nn.token_classifier`."""
        yes, no = (ids[0] for ids in self._tokens(self.answers))
        return yes, no

    def _tokens(self, texts):
        every = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        return [one.ids for one in every]

    def _cut(self, texts, limit):
        """The texts, those of more tokens ended where a token ends."""
        stripped = [text.strip() for text in texts]
        every = self.tokenizer.encode_batch(stripped, add_special_tokens=False)
        return [
            text if len(one.ids) <= limit else text[: one.offsets[limit - 1][1]].rstrip()
            for text, one in zip(stripped, every, strict=True)
        ]


_HOLE, _QUERY = "\0", "\1"  # in no text


def verdict(
    tokenizer: Tokenizer,
    *,
    answers: tuple[str, str] = ("true", "false"),
    place: Place = "query",
    instruction: str = TASK,
    prompt: Path | None = None,
    query_limit: int = 256,
    document_limit: int = 512,
) -> Verdict:
    """The question.

    Args:
      tokenizer: of the model.
      answers: for a tool that fits and for one that does not, a token each.
      place: of the instruction, see `PLACES`.
      instruction: the task in words; with place ``query`` it may be empty, and is then left out.
      prompt: a file of one's own in place of ours, with the same placeholders, such as the words
        that published weights were trained on. The document should begin a line, so that no
        token holds both of what is before it and of it.
      query_limit: tokens a query is cut to, >= 1.
      document_limit: tokens a document is cut to, >= 1.

    Raises:
      ValueError: for another place, an empty instruction on a line of its own, a limit, answers of
        more tokens, or a prompt whose document is not behind its query.
    """
    require("place", place, f"one of {list(PLACES)}", PLACES.__contains__)
    if place == "line" and not instruction:
        raise ValueError("an empty instruction has no line: place must be 'query'")
    for name, limit in {"query_limit": query_limit, "document_limit": document_limit}.items():
        require(name, limit, ">= 1", lambda n: n >= 1)
    holes = ("instruction", "query", "document", "yes", "no")
    file = PROMPTS / PLACES[place] if prompt is None else prompt
    asked = Verdict(
        tokenizer=tokenizer,
        prompt=load_prompt(file, holes if place == "line" else holes[1:]),
        answers=answers,
        instruction=instruction,
        query_limit=query_limit,
        document_limit=document_limit,
    )
    if len(set(answers)) < 2 or any(len(ids) != 1 for ids in asked._tokens(answers)):
        raise ValueError(f"answers must be two words that are a token each, got {answers}")
    before, _, after = asked.text(_QUERY, _HOLE).partition(_HOLE)
    if _QUERY not in before or _QUERY in after or _HOLE in after:
        raise ValueError(f"{file}: the document must come once, and after the query")
    return asked
