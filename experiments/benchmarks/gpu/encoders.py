"""Texts a second, against HuggingFace PyTorch on the same batches; parity in float32.

Keys ``encoders/<network>/<form>``, texts a second, and ``share``, that of the measured bfloat16
rate. Batches are sorted by length and padded alike; tokenising is not timed.

    jax              `jaxret.encoders.encoding.forward`, as the library encodes: batch after batch
                     from the host and back, in bfloat16
    jax_device       the same program on batches that are there, nothing fetched in between
    torch            the same batches that are there, in bfloat16, attention by PyTorch's SDPA
    torch_compiled   by torch.compile, on a GPU
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.gpu import readers
from experiments.benchmarks.gpu.record import Record
from experiments.benchmarks.gpu.settings import Reader, Settings
from experiments.benchmarks.gpu.timing import Build, compare
from experiments.benchmarks.gpu.torch_here import compiled, device, here, tf32, wait
from jaxret.encoders import TextEncoder, forward
from jaxret.encoders.padding import batches
from jaxret.types import Params

FIT = 1e-4  # between vectors of length 1, in float32


def measure(settings: Settings, record: Record) -> None:
    """Every network."""
    for reader in settings.readers:
        record.attempt(f"encoders/{reader.name}", partial(_one, settings, record, reader))


def _one(settings: Settings, record: Record, reader: Reader) -> dict[str, float] | None:
    texts = readers.tokens(reader)
    work = list(batches(texts, settings.batch_tokens))
    model = None
    if here():
        import torch

        model = readers.twin(reader.kind, reader.shape, device())
        params = readers.weights_of(model, readers.backbone(reader.kind, reader.shape))
        parity = _parity(reader, params, model, work[-1])
        record.keep(f"encoders/{reader.name}/parity", parity)
        model = model.to(torch.bfloat16)
    else:
        network = readers.backbone(reader.kind, reader.shape).network()
        params = jax.jit(network.init)(jax.random.key(0))
    encoder = readers.encoder(reader, params, "bfloat16")
    builds: dict[str, Build] = {
        "jax": partial(_library, encoder, work, len(texts)),
        "jax_device": partial(_device_alone, encoder, work, len(texts)),
    }
    if model is not None:
        theirs = partial(_torch, model, encoder.spec.pooling, work, len(texts))
        builds["torch"] = partial(theirs, False)
        if device() == "cuda":
            builds["torch_compiled"] = partial(theirs, True)
    group, repeats = f"encoders/{reader.name}", max(3, settings.repeats // 2)
    compare(record, group, builds, unit="s a text", scale=1.0, repeats=repeats)
    work_a_text = readers.operations(reader, [len(text) for text in texts]) / len(texts)
    peak = record.results.get("limits/bfloat16")
    for name in builds:
        if timed := record.results.get(f"{group}/{name}"):
            rate = work_a_text / timed["median"]
            share = {"share_of_peak": rate / peak["median"]} if peak else {}
            found = {"texts_a_second": 1 / timed["median"], "flop_a_second": rate, **share}
            record.keep(f"{group}/{name}/rate", found)
    return None


def _parity(reader: Reader, params: Params, model, batch) -> dict[str, float]:
    """The largest difference of two unit vectors' numbers, both in float32."""
    import torch

    _, ids, mask = batch
    encoder = readers.encoder(reader, params, "float32")
    with jax.default_matmul_precision("float32"):
        ours = np.asarray(encoder.compiled(encoder.params, jnp.asarray(ids), jnp.asarray(mask)))
    with torch.inference_mode(), tf32(False):
        theirs = _embed(model, encoder.spec.pooling, *_tensors(ids, mask)).cpu().numpy()
    gap = float(np.abs(ours - theirs).max())
    if not gap < FIT:
        raise AssertionError(f"{reader.name}: vectors differ by {gap:.1e}, no comparison of times")
    return {"largest_difference": gap}


def _library(encoder: TextEncoder, work: list, texts: int):
    return lambda: [vectors for _, vectors in forward(encoder, work)], texts


def _device_alone(encoder: TextEncoder, work: list, texts: int):
    there = [(jnp.asarray(ids), jnp.asarray(mask)) for _, ids, mask in work]
    run, params = encoder.compiled, encoder.params
    return lambda: jax.block_until_ready([run(params, *batch) for batch in there]), texts


def _torch(model, pooling: str, work: list, texts: int, faster: bool):
    import torch

    embed = compiled(_embed) if faster else _embed
    there = [_tensors(ids, mask) for _, ids, mask in work]

    @torch.inference_mode()
    def run():
        found = [embed(model, pooling, *batch) for batch in there]
        wait(found[-1])

    return run, texts


def _embed(model, pooling: str, ids, mask):
    import torch

    hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    if pooling == "last":
        pooled = hidden[torch.arange(len(ids), device=ids.device), mask.sum(1) - 1]
    else:
        pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return torch.nn.functional.normalize(pooled.float(), dim=1)


def _tensors(ids: np.ndarray, mask: np.ndarray):
    import torch

    return tuple(torch.tensor(x, device=device()).long() for x in (ids, mask))
