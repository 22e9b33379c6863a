"""Tool-Rank: a language model judges whether a tool fits a query (Tool-REX, Sections 2.5, B.3).

    score = log softmax(logit of true, logit of false) of true

Published weights, and weights that are trained further:

    model = load_language_model("tool_rank_4b")
    question = verdict(model.tokenizer)
    published = reranker(model.network(question), model.params(question), question, documents)

    trained = fit(train, Config(path=folder), validation=validation, first=first)
    final = refine(trained, texts, search(first, texts, k=32))

The paper ranks by the probability. Its logarithm gives the same order and separates probabilities
that rounding would make equal. The logits of the other 151,000 tokens are not computed
(`jaxret.nn.token_classifier`).

The question is a conversation in Qwen's form with an empty thinking block, so that the next token
is the answer:

    <|im_start|>system .. <|im_end|> <|im_start|>user .. query .. document <|im_end|>
    <|im_start|>assistant <think> </think>

Its words, in ``prompts/``, are ours. The paper's Figure 8 has no instruction, its code puts one in
front of the query, and Qwen3's rerankers give it a line of its own; ``place`` selects the form. A
document is cut before it is inserted, so that the rest of the question is never lost; Tool-REX's
code cuts the whole and loses its end. A line break separates the part up to the document
(`Verdict.heads`) from the rest (`Verdict.tails`); each is tokenised once, and then they are joined.

The device joins the pairs from stored tokens, sorts them by length, and runs them through the model
in groups, each cut to one of three lengths, so that short pairs cost less.

Letters: B queries or examples, k candidates, I tools, L tokens up to the document, M from it on,
P pairs, m negatives per pair.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int
from tokenizers import Tokenizer

from jaxret.encoders import TASK, DType, TextEncoder
from jaxret.encoders.padding import COARSE, pad
from jaxret.llm import Prompt, load_prompt
from jaxret.methods.common import FirstStage, trained, words
from jaxret.methods.tool2vec import tool2vec_stage
from jaxret.nn import checkpoints
from jaxret.nn.backbone import Backbone, read_backbone
from jaxret.nn.functional import Module
from jaxret.nn.layers import Compute
from jaxret.nn.placement import memory_report
from jaxret.nn.token_classifier import load_token_classifier, token_classifier
from jaxret.retrieval.retriever import Reranker, Retriever
from jaxret.retrieval.tokens import features, pair
from jaxret.runtime.validate import require, require_one_of, require_texts
from jaxret.task import Task
from jaxret.training import losses, negatives, word_dropout
from jaxret.training.batches import Tokens, shuffled
from jaxret.training.config import TrainingConfig
from jaxret.training.loop import Objective
from jaxret.training.store import Hooks
from jaxret.training.trainable import Lora, trainable
from jaxret.types import Params

#: Published weights and where they are. Qwen's were trained to answer yes or no.
RERANKERS = {
    "qwen3_reranker_0_6b": "Qwen/Qwen3-Reranker-0.6B",
    "qwen3_reranker_4b": "Qwen/Qwen3-Reranker-4B",
    "qwen3_reranker_8b": "Qwen/Qwen3-Reranker-8B",
    "tool_rank_4b": "Lux1997/Tool-Rank-4B",
    "tool_rank_8b": "Lux1997/Tool-Rank-8B",
}
PROMPTS = Path(__file__).parent / "prompts"
#: The position of the instruction: in front of the query, or on a line of its own.
PLACES = {"query": "tool_rank.txt", "line": "tool_rank_instructed.txt"}
THINKING = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
_HOLE, _QUERY = "\0", "\1"  # characters that are in no text

Place = Literal["query", "line"]


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Settings for a small model.

    Raises:
      ValueError: for a value out of its range, or a prompt without its placeholders.
      FileNotFoundError: for a prompt that does not exist.
    """

    weights: str = "qwen3_reranker_0_6b"  # initial weights, one of `RERANKERS`
    path: str | None = None  # a folder in HuggingFace layout; None: the hub
    answers: tuple[str, str] = ("true", "false")
    place: Place = "query"  # of the instruction: before the query, or on its own line
    instruction: str = ""  # none, as in the paper's figure
    prompt: str | None = None  # file of another prompt, as `read_prompt` takes it
    candidates: int = 32  # candidates of the first stage, reranked
    leave_out: bool = False  # leaves each training query out of Tool2Vec's means of its tools
    hard: Literal["candidates", "random"] = "random"  # wrong tools: the first stage's best, or any
    negatives: int = 1
    redraws: int = 30  # sets of random negatives; an epoch has all of them
    lora: Lora | None = None  # None trains all parameters
    drop_words: float = 1.0  # the largest share of a query's words that is dropped; ours
    limit: int = 48
    document_limit: int = 32  # tokens
    pairs: int = 16  # scored together
    size: int = 64
    epochs: float = 2
    learning_rate: float = 1e-3
    warmup: float = 0.1
    weight_decay: float = 0.1
    validate: float = 0.1
    validated: int = 202  # validation queries that are used

    def __post_init__(self):
        super().__post_init__()
        require_one_of("weights", self.weights, RERANKERS)
        read_prompt(self.prompt, self.place)
        word_dropout.check(self.drop_words)
        counts = ("candidates", "negatives", "redraws", "document_limit", "pairs", "validated")
        for field in counts:
            require(field, getattr(self, field), ">= 1", lambda n: n >= 1)


def fit(
    task: Task,
    config: Config,
    *,
    validation: Task,
    first: FirstStage | Retriever | None = None,
    seed: int = 0,
    name: str = "tool_rank",
    folder: str | Path | None = None,
    hooks: Hooks = Hooks(),
) -> Reranker:
    """Train the language model.

    Args:
      task: the training queries, with texts and documents.
      config: the model and the settings.
      validation: the queries on which the best step is chosen.
      first: the stage whose candidates are reranked; None: Tool2Vec of the task.
      seed: seed of the adapter, draws and order.
      name: shown in the progress bar and in errors.
      folder: where models are kept, found again and resumed; None keeps nothing.
      hooks: tracker, progress bar and callbacks of the run.

    Raises:
      ValueError: if the task has no texts or no documents, or neither vectors nor a first stage.
      FileNotFoundError: if the weights are not found.
    """
    texts, documents, _ = words(task, name, ["texts", "documents"])
    if first is None:
        task.require_vectors()
    stage = tool2vec_stage(task, config.leave_out) if first is None else FirstStage.of(first)
    model, question = _model(config)
    hooks.say(f"{config.weights}: {model.memory()}")  # before anything is loaded
    params = model.params(question)
    part = trainable(model.network(question, config.compute), params, config.lora, seed)
    network = model.network(question)
    untrained = reranker(network, params, question, documents, pairs=config.pairs, name=name)
    untrained = untrained._replace(config=config)
    table = untrained.params[1]

    def with_params(now):
        return untrained._replace(params=(part.whole(now), table))

    def objective():
        return verdicts(
            part.apply,
            question.heads(texts),
            question.tails(documents),
            _pairs(task, config, stage, seed),
            drop_words=config.drop_words,
            size=config.size,
            seed=seed,
        )._replace(frozen=part.frozen)

    best = trained(
        name,
        config,
        task,
        validation,
        seed=seed,
        folder=folder,
        hooks=hooks,
        start=part.start,
        objective=objective,
        model=with_params,
        first=stage,
    )
    return with_params(best)


def build(config: Config, params: Params, encoder: TextEncoder | None, name: str) -> Reranker:
    """Make the reranker of saved parameters; find tokenizer and architecture by the config.

    Args:
      config: the settings that the model was trained with.
      params: the network's parameters, and the documents' tokens and mask.
      encoder: not used.
      name: shown in the progress bar and in errors.

    Raises:
      FileNotFoundError: if the checkpoint that training started from is not found.
    """
    model, question = _model(config)
    read, score = question.read, _scorer(model.network(question), config.pairs)
    return Reranker(name=name, read=read, params=params, score=score, config=config)


def _model(config: Config) -> "tuple[LanguageModel, Verdict]":
    path = None if config.path is None else Path(config.path)
    model = load_language_model(config.weights, path, dtype=config.dtype)
    question = verdict(
        model.tokenizer,
        answers=config.answers,
        place=config.place,
        instruction=config.instruction,
        prompt=config.prompt,
        query_limit=config.limit,
        document_limit=config.document_limit,
    )
    return model, question


def _pairs(task: Task, config: Config, stage: FirstStage, seed: int) -> Int[np.ndarray, "P 2+m"]:
    """Pair each right tool with wrong ones."""
    count = config.negatives
    if config.hard == "candidates":
        found = stage.rank(task, config.candidates).items
        return negatives.hard_negatives(task.labels, found, count=count)
    seeds = (seed + 1000 * i for i in range(config.redraws))
    items = len(task.ids)
    return np.concatenate(
        [negatives.random_negatives(task.labels, items, count=count, seed=one) for one in seeds]
    )


def verdicts(
    answer: Callable[..., Float[Array, "B 2"]],
    heads: Tokens,
    tails: Tokens,
    pairs: Int[np.ndarray, "P 2+m"],
    *,
    drop_words: float = 0.0,
    size: int = 16,
    seed: int = 0,
) -> Objective:
    """Make the objective: the answer's cross-entropy, true for right tools, false for wrong ones.

    The paper's code takes the softmax over the whole vocabulary. Ours is over the two answers,
    which is also the ranking score.

    Args:
      answer: ``(params, ids, mask, key=)`` -> logits of true and of false [B, 2].
      heads: the tokens of each query up to the document, from `Verdict.heads`.
      tails: the tokens of each tool from the document on, from `Verdict.tails`.
      pairs: query, right tool, wrong tools [P, 2 + m], padded with -1, from
        `jaxret.training.negatives`; a row gives up to 1 + m examples.
      drop_words: largest share of a query's words that is dropped, anew in each batch; ours.
      size: examples per batch.
      seed: seed of the order.

    Raises:
      ValueError: for a share of words outside 0 .. 1.
    """
    word_dropout.check(drop_words)
    kept = word_dropout.frame(heads)
    rows, columns = np.nonzero(pairs[:, 1:] >= 0)
    query, tool = pairs[rows, 0], pairs[rows, 1 + columns]
    which = columns.clip(max=1).astype(np.int32)[:, None]  # 0 is true, 1 is false

    def collate(examples):
        ids, mask = pad([[*heads[query[i]], *tails[tool[i]]] for i in examples], COARSE)
        lengths = [len(heads[query[i]]) for i in examples]
        droppable = word_dropout.droppable(lengths, kept, ids.shape[1])
        return {"ids": ids, "mask": mask, "words": droppable, "answer": which[examples]}

    def loss(params, batch, key):
        mask = batch["mask"]
        if drop_words:
            key, draws = jax.random.split(key)
            mask = word_dropout.drop(draws, mask, batch["words"], drop_words)
        logits = answer(params, batch["ids"], mask, key=key)
        right = logits.argmax(axis=1) == batch["answer"][:, 0]
        return losses.softmax_ce(logits, batch["answer"]), {"accuracy": jnp.mean(right)}

    lengths = [len(heads[q]) + len(tails[t]) for q, t in zip(query, tool, strict=True)]
    return Objective(loss, shuffled(lengths, collate, size=size, seed=seed))


class Verdict(NamedTuple):
    """The question, with its tokenizer. Made by `verdict`."""

    tokenizer: Tokenizer
    prompt: Prompt
    answers: tuple[str, str]
    instruction: str
    query_limit: int
    document_limit: int

    def text(self, query: str, document: str) -> str:
        """Return the whole question about a query and a document, neither of them cut."""
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
        """Return the tokens of each query's question up to the document.

        Raises:
          TypeError, ValueError: if a query is not a string, or is blank.
        """
        require_texts(queries)
        cut = self._cut(queries, self.query_limit)
        return self.tokens([self.text(query, _HOLE).partition(_HOLE)[0] for query in cut])

    def read(self, queries: Sequence[str]) -> dict[str, np.ndarray]:
        """Return ``ids [B, L]`` and ``mask [B, L]`` of the heads of queries."""
        return features(self.heads(queries))

    def tails(self, documents: Sequence[str]) -> list[list[int]]:
        """Return the tokens of the question from each document on."""
        end = self.text("", _HOLE).partition(_HOLE)[2]
        return self.tokens([one + end for one in self._cut(documents, self.document_limit)])

    @property
    def words(self) -> tuple[int, int]:
        """The tokens of the two answers, for `jaxret.nn.token_classifier`."""
        yes, no = (ids[0] for ids in self.tokens(self.answers))
        return yes, no

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text, without special ones around them."""
        every = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [one.ids for one in every]

    def _cut(self, texts, limit):
        """Cut texts of more than ``limit`` tokens where a token ends."""
        stripped = [text.strip() for text in texts]
        every = self.tokenizer.encode_batch(stripped, add_special_tokens=False)
        return [
            text if len(one.ids) <= limit else text[: one.offsets[limit - 1][1]].rstrip()
            for text, one in zip(stripped, every, strict=True)
        ]


def read_prompt(path: str | Path | None, place: Place = "query") -> Prompt:
    """Read the text of the question, such as the one that published weights were trained on.

    Args:
      path: a file with ``$query``, ``$document``, with place "line" ``$instruction``, and perhaps
        ``$yes`` and ``$no``, the two answers; None: ours.
      place: position of the instruction, a key of `PLACES`.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if a placeholder is missing or unknown.
    """
    holes = ("instruction", "query", "document") if place == "line" else ("query", "document")
    file = PROMPTS / PLACES[place] if path is None else Path(path)
    return load_prompt(file, holes, optional=("yes", "no"))


def verdict(
    tokenizer: Tokenizer,
    *,
    answers: tuple[str, str] = ("true", "false"),
    place: Place = "query",
    instruction: str = TASK,
    prompt: str | Path | None = None,
    query_limit: int = 256,
    document_limit: int = 512,
) -> Verdict:
    """Make the question.

    Args:
      tokenizer: tokenizer of the model.
      answers: for a tool that fits and for one that does not, one token each.
      place: position of the instruction, a key of `PLACES`.
      instruction: the task in words. With place "query" it may be empty and is then left out.
      prompt: a file to use instead of ours, as `read_prompt` takes it. A line should begin at the
        document, so that no token spans its beginning.
      query_limit: tokens that a query is cut to, >= 1.
      document_limit: tokens that a document is cut to, >= 1.

    Raises:
      ValueError: for an unknown place, an empty instruction on a line of its own, a limit below 1,
        answers that are not one token each, or a prompt that lacks a placeholder or whose document
        does not follow its query.
      FileNotFoundError: for a prompt that does not exist.
    """
    require("place", place, f"one of {list(PLACES)}", PLACES.__contains__)
    if place == "line" and not instruction:
        raise ValueError("an empty instruction has no line: place must be 'query'")
    for name, limit in {"query_limit": query_limit, "document_limit": document_limit}.items():
        require(name, limit, ">= 1", lambda n: n >= 1)
    question = Verdict(
        tokenizer=tokenizer,
        prompt=read_prompt(prompt, place),
        answers=answers,
        instruction=instruction,
        query_limit=query_limit,
        document_limit=document_limit,
    )
    if len(set(answers)) < 2 or any(len(ids) != 1 for ids in question.tokens(answers)):
        raise ValueError(f"answers must be two words that are a token each, got {answers}")
    before, _, after = question.text(_QUERY, _HOLE).partition(_HOLE)
    if _QUERY not in before or _QUERY in after or _HOLE in after:
        name = PLACES[place] if prompt is None else prompt
        raise ValueError(f"{name}: the document must come once, and after the query")
    return question


class LanguageModel(NamedTuple):
    """A decoder's checkpoint. `params` reads the weights."""

    backbone: Backbone
    directory: Path
    tokenizer: Tokenizer
    dtype: DType
    mesh: Mesh | None

    def network(self, question: Verdict, compute: Compute | None = None) -> Module:
        """Make the network whose outputs are the logits of the two answers.

        Args:
          question: question about a query and a document.
          compute: dropout and precision; None: no dropout, the model's precision.

        Returns:
          a network with ``apply(params, ids, mask, key=None) -> logits [B, 2]``.
        """
        compute = Compute(dtype=self.dtype) if compute is None else compute
        return token_classifier(self.backbone, question.words, compute)

    def params(self, question: Verdict) -> Params:
        """Read the parameters of the network for a question from the checkpoint."""
        return load_token_classifier(
            self.backbone, self.directory, question.words, dtype=self.dtype, mesh=self.mesh
        )

    def memory(self) -> str:
        """Describe the memory of the parameters, except the two answers' rows; nothing is read."""
        return memory_report(self.backbone.shapes(dtype=self.dtype, mesh=self.mesh))


def load_language_model(
    name: str, path: Path | None = None, *, dtype: DType = "float32", mesh: Mesh | None = None
) -> LanguageModel:
    """Find the checkpoint of one of `RERANKERS`.

    Args:
      name: a key of `RERANKERS`.
      path: a local checkpoint to use instead of the published weights.
      dtype: type of the parameters and the matrix products.
      mesh: devices with an axis ``model``, over which the parameters are split; None: one device.

    Raises:
      ValueError: for an unknown name, or a checkpoint of another kind.
      FileNotFoundError: if the weights are not found.
    """
    if name not in RERANKERS:
        raise ValueError(f"reranker must be one of {list(RERANKERS)}, got {name!r}")
    directory = checkpoints.locate(path, hub_id=RERANKERS[name])
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    backbone = read_backbone(directory / "config.json")
    return LanguageModel(
        backbone=backbone, directory=directory, tokenizer=tokenizer, dtype=dtype, mesh=mesh
    )


def reranker(
    network: Module,
    params: Params,
    question: Verdict,
    documents: Sequence[str],
    *,
    pairs: int = 16,
    name: str = "tool_rank",
) -> Reranker:
    """Make a reranker of a language model.

    Args:
      network: from `LanguageModel.network`.
      params: its parameters.
      question: question about a query and a document.
      documents: the documents of the I tools.
      pairs: pairs that run through the model together.
      name: shown in the progress bar and in errors.
    """
    ids, mask = pad(question.tails(documents), COARSE)
    table = (jnp.asarray(ids), jnp.asarray(mask))
    return Reranker(
        name=name, read=question.read, params=(params, table), score=_scorer(network, pairs)
    )


def _scorer(network: Module, pairs: int) -> Callable[..., Float[Array, "B k"]]:
    """Make ``score(params, features, candidates [B, k]) -> log probabilities [B, k]``.

    ``params`` are the network's parameters, and the documents' tokens and mask, [I, M] each;
    ``features`` hold ``ids`` and ``mask`` of the queries [B, L].
    """

    def score(params, features, candidates):
        network_params, table = params
        tools, k = jnp.maximum(candidates, 0).ravel(), candidates.shape[1]
        queries = jnp.repeat(jnp.arange(len(candidates)), k)
        lengths = features["mask"].sum(axis=1)[queries] + table[1].sum(axis=1)[tools]
        longest = features["ids"].shape[1] + table[0].shape[1]
        cuts = [-(-longest * part // 4) for part in (2, 3, 4)]

        def group(rows):
            head = (features[name][queries[rows]] for name in ("ids", "mask"))
            tail = (x[tools[rows]] for x in table)
            ids, mask, _ = jax.vmap(pair)(*head, *tail)
            wide = jnp.searchsorted(jnp.array(cuts), lengths[rows].max())

            def run(cut):
                return lambda: network.apply(network_params, ids[:, :cut], mask[:, :cut])

            logits = jax.lax.switch(wide, [run(cut) for cut in cuts])
            return jax.nn.log_softmax(logits, axis=1)[:, 0]

        order = jnp.argsort(lengths)
        groups = jnp.pad(order, (0, -len(order) % pairs), mode="edge").reshape(-1, pairs)
        found = jax.lax.map(group, groups).ravel()[: len(order)]
        return jnp.zeros_like(found).at[order].set(found).reshape(candidates.shape)

    return score
