"""How large each part is, on a GPU and in a test."""

from typing import Any, NamedTuple


class Size(NamedTuple):
    """A catalogue, and how many rounds are timed."""

    items: int
    width: int
    blocked: int  # rounds of what reads Theta once a block
    scan: int  # of what reads it every round
    checked: int  # rounds that are played on the CPU too

    @property
    def name(self) -> str:
        return f"{self.items}x{self.width}"


class Reader(NamedTuple):
    """A text encoder: its shape, and what it reads."""

    name: str
    kind: str  # bert or qwen3
    shape: dict[str, int]  # as config.json names it
    texts: int
    lengths: tuple[int, ...]  # tokens; few, since each compiles a program


class Training(NamedTuple):
    """A batch of training."""

    shape: dict[str, int]
    batch: int
    tokens: int
    classes: int
    candidates: int
    width: int


class Settings(NamedTuple):
    """Of all parts."""

    sizes: tuple[Size, ...]
    block: int
    blocks: tuple[int, ...]
    tiles: tuple[int, ...]
    kernel_tiles: tuple[int, ...]
    kernel_warps: tuple[int, ...]
    pieces: tuple[int, ...]  # items a program of `jaxret.simulation.blocked.round_kernel`
    piece_warps: tuple[int, ...]
    grid: Size
    taus: int
    etas: int
    seeds: int
    rules: tuple[Size, ...]
    readers: tuple[Reader, ...]
    batch_tokens: int
    training: Training
    product: int  # side of the square products that are timed
    copied: int  # float32 numbers that are copied
    repeats: int
    broken: tuple[str, ...] = ()  # kernels that failed when they were tried


def by_name(value: Any) -> Any:
    """Settings as JSON has them: fields by their names."""
    if not isinstance(value, tuple):
        return value
    if hasattr(value, "_asdict"):
        return {name: by_name(field) for name, field in value._asdict().items()}
    return [by_name(one) for one in value]


def bert(hidden: int, layers: int, heads: int, vocabulary: int = 30522) -> dict[str, int]:
    """A BERT's shape."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
    }


def qwen3(
    hidden: int, layers: int, heads: int, head: int, inner: int, words: int
) -> dict[str, int]:
    """A Qwen3's shape; two heads of queries share one of keys."""
    return {
        "vocab_size": words,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2,
        "head_dim": head,
        "intermediate_size": inner,
        "max_position_embeddings": 32768,
    }


FULL = Settings(
    sizes=(
        Size(3000, 384, blocked=4096, scan=2048, checked=2048),
        Size(43215, 1536, blocked=2048, scan=512, checked=512),
        Size(1_000_000, 768, blocked=512, scan=64, checked=128),
    ),
    block=128,
    blocks=(64, 256, 512),
    tiles=(4, 32, 128),
    kernel_tiles=(4, 16),
    kernel_warps=(8, 32),
    pieces=(256, 512, 2048, 4096),
    piece_warps=(2, 8),
    grid=Size(2032, 384, blocked=1024, scan=1024, checked=1024),
    taus=4,
    etas=4,
    seeds=4,
    rules=(
        Size(2000, 384, blocked=1024, scan=1024, checked=0),
        Size(43215, 1536, blocked=256, scan=256, checked=0),
    ),
    readers=(
        Reader("minilm", "bert", bert(384, 6, 12), 8192, (32, 64, 128, 256)),
        Reader("bert_base", "bert", bert(768, 12, 12), 4096, (32, 64, 128, 256)),
        Reader("qwen3_0_6b", "qwen3", qwen3(1024, 28, 16, 128, 3072, 151669), 1024, (64, 128)),
    ),
    batch_tokens=32768,
    training=Training(
        bert(384, 6, 12), batch=64, tokens=64, classes=2032, candidates=64, width=384
    ),
    product=8192,
    copied=2**29,
    repeats=10,
)
SMALL = Settings(
    sizes=(Size(40, 128, blocked=32, scan=16, checked=32),),  # wide: draws are not all of the best
    block=16,
    blocks=(8,),
    tiles=(4,),
    kernel_tiles=(2,),
    kernel_warps=(4,),
    pieces=(16,),
    piece_warps=(4,),
    grid=Size(30, 8, blocked=32, scan=16, checked=16),
    taus=2,
    etas=1,
    seeds=2,
    rules=(Size(40, 8, blocked=16, scan=16, checked=0),),
    readers=(
        Reader("minilm", "bert", bert(16, 1, 2, 50), 12, (16,)),
        Reader("qwen3_0_6b", "qwen3", qwen3(16, 1, 2, 8, 32, 50), 8, (16,)),
    ),
    batch_tokens=64,
    training=Training(bert(16, 1, 2, 50), batch=4, tokens=8, classes=20, candidates=4, width=8),
    product=64,
    copied=2**12,
    repeats=2,
)
