"""How fast is jaxret on a GPU, against PyTorch on the same GPU?

    python -m experiments.benchmarks.gpu --out DIR             # eight minutes on one GPU
    python -m experiments.benchmarks.gpu --out DIR --small     # a minute or two on a CPU: a trial

Needs neither hydra nor wandb nor a network: vectors, texts and weights are random. Compares with
PyTorch where torch and transformers are installed. The parts, in this order:

    limits       bandwidth of a copy, and rate of a matrix product in each precision
    simulation   a round of ORAG's Algorithm 1 at three sizes (`experiments.benchmarks.rounds`)
    grid         64 runs as one program, one after another, and one run
    encoders     BERTs in bfloat16, after a check in float32 that the vectors agree
    training     a step of MLC, after a check that PyTorch's step gives the same in float32

Writes DIR/gpu.json after every measurement, and draws DIR/gpu.png after every part. Keys:

    limits/<bandwidth|precision>            bytes or operations per second
    simulation/<I>x<d>/<form>/<precision>   microseconds per round; products are the two of a block
    simulation/<I>x<d>/same_items           share of rounds in which scan and blocked form agree
    grid/<form>                             milliseconds per call
    encoders/<network>/<form>               microseconds per text; jax takes arrays of the host, as
                                            the library does, the other forms those of the device
    training/mlc/<form>/<precision>         milliseconds per step; weights are float32

Forms are timed in turn on the host's clock, each call until its result is ready. A form that fails,
or for which no time is left, is listed under ``missing``: on an H200 all parts take 517 s, so the
last ones need ``--minutes 9`` or a call of their own (``--parts training``)."""

import argparse
import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks import machine, rounds, timing
from experiments.benchmarks.record import Build, Record
from experiments.benchmarks.timing import Form
from jaxret.encoders import ENCODERS, TextEncoder, forward
from jaxret.encoders.padding import batches
from jaxret.methods.mlc import classification
from jaxret.nn import bert
from jaxret.nn.backbone import Backbone
from jaxret.nn.classifier import classifier
from jaxret.nn.layers import Compute

PRECISIONS = {"float32": "F32_F32_F32", "tf32": "TF32_TF32_F32"}  # of matrix products in JAX
COLOURS = {"float32": "tab:blue", "tf32": "tab:green"}
PARITY = 1e-4  # largest difference of two encoders' unit vectors in float32
#: Share of the remaining time that each part may use.
SHARES = {"limits": 0.1, "simulation": 0.5, "grid": 0.4, "encoders": 0.6, "training": 0.9}


class Settings(NamedTuple):
    """Sizes of all parts; the defaults are for one large GPU."""

    #: items, width, rounds of the forms that read Theta once per block, rounds of the others
    sizes: tuple[tuple[int, int, int, int], ...] = (
        (43215, 1536, 2048, 512),
        (1_000_000, 768, 512, 64),
        (3000, 384, 4096, 2048),
    )
    grid: tuple[int, int, int, int] = (2032, 384, 1024, 8)  # items, width, rounds, eta = seeds
    #: name, hidden width, layers, heads, vocabulary
    berts: tuple[tuple[str, int, int, int, int], ...] = (
        ("minilm", 384, 6, 12, 30522),
        ("base", 768, 12, 12, 30522),
    )
    texts: int = 8192
    lengths: tuple[int, ...] = (32, 64, 128, 256)  # tokens; one program per length
    batch_tokens: int = 32768
    mlc: tuple[int, int, int] = (64, 64, 2032)  # texts in a batch, tokens, classes
    copied: int = 2**29  # float32 numbers
    product: int = 8192  # side of the matrices
    repeats: int = 10


SMALL = Settings(
    sizes=((40, 128, 64, 32),),
    grid=(30, 8, 32, 2),
    berts=(("minilm", 16, 1, 2, 50),),
    texts=12,
    lengths=(16,),
    batch_tokens=64,
    mlc=(4, 8, 20),
    copied=2**12,
    product=64,
    repeats=3,
)


def limits(settings: Settings, record: Record) -> None:
    """Measure the bandwidth and the rates of the GPU."""
    repeats = settings.repeats
    record.attempt("limits/bandwidth", partial(machine.copying, settings.copied, repeats))
    kinds = {name: (PRECISIONS[name], jnp.float32) for name in _precisions()}
    for name, (algorithm, dtype) in {**kinds, "bfloat16": ("BF16_BF16_F32", jnp.bfloat16)}.items():
        with jax.default_matmul_precision(algorithm):
            rate = partial(machine.multiplying, settings.product, repeats, dtype)
            record.attempt(f"limits/{name}", rate)


def simulation(settings: Settings, record: Record) -> None:
    """Time one round of Algorithm 1 in each form, size and precision."""
    for items, width, many, fewer in settings.sizes:
        problem, group = rounds.random_problem(items, width, many), f"simulation/{items}x{width}"
        few = problem.first(fewer)
        record.attempt(f"{group}/same_items", partial(_same_items, few))
        makes = {"blocked": partial(rounds.blocked, problem), "scan": partial(rounds.scan, few)}
        makes["products"] = partial(rounds.products, problem)
        builds = {
            f"{form}/{name}": _precise(name, make)
            for name in _precisions()
            for form, make in makes.items()
        }
        if _has_torch():  # PyTorch's rounds multiply a matrix by a vector, so TF32 changes nothing
            builds |= {f"{name}/float32": form for name, form in rounds.torch_forms(few).items()}
        record.compare(group, builds, 1e6, settings.repeats)


def grid(settings: Settings, record: Record) -> None:
    """Time a grid of runs as one program, and one after another."""
    *shape, steps = settings.grid
    forms = rounds.grid(rounds.random_problem(*shape), steps, seeds=steps)
    builds = {
        name: _precise(_precisions()[-1], partial(form._replace, rounds=1))
        for name, form in forms.items()
    }
    record.compare("grid", builds, 1e3, settings.repeats)


def encoders(settings: Settings, record: Record) -> None:
    """Time every BERT; one whose vectors differ from PyTorch's is missing."""
    rng = np.random.default_rng(0)
    lengths = rng.choice(settings.lengths, settings.texts) - rng.integers(0, 6, settings.texts)
    for network in settings.berts:
        tokens = [rng.integers(1, network[-1], length).tolist() for length in lengths]
        work = list(batches(tokens, settings.batch_tokens))
        config, group = _config(*network[1:]), f"encoders/{network[0]}"
        calls: dict[str, Callable[[], object]] = {}
        if not record.attempt(f"{group}/parity", partial(_encoder, config, work, calls)):
            continue
        builds = {name: partial(Form, call, rounds=len(tokens)) for name, call in calls.items()}
        record.compare(group, builds, 1e6, settings.repeats)


def training(settings: Settings, record: Record) -> None:
    """Time a step of MLC on the first BERT, if PyTorch's step ends at the same weights."""
    (size, length, classes), rng = settings.mlc, np.random.default_rng(0)
    config, precision = _config(*settings.berts[0][1:]), _precisions()[-1]
    draw_text = partial(rng.integers, 1, config["vocab_size"])
    texts = [draw_text(n).tolist() for n in rng.integers(length // 2, length, size)]
    labels = rng.integers(0, classes, (size, 2)).astype(np.int32)
    network = partial(classifier, _backbone(config), classes, pool="mean")
    exact, half = network(), network(compute=Compute(dtype="bfloat16"))
    recipes = {
        dtype: classification(one, texts, labels, size=size)
        for dtype, one in {"float32": exact, "bfloat16": half}.items()
    }
    params = exact.init(jax.random.key(0))
    batch = jax.tree.map(jnp.asarray, recipes["float32"].batches(0))

    def jax_step(dtype):
        return Form(timing.Training(recipes[dtype].loss, params, batch))

    dtypes = {precision: "float32", "bfloat16": "bfloat16"}
    builds: dict[str, Build] = {
        f"jax/{name}": _precise(precision, partial(jax_step, dtype))
        for name, dtype in dtypes.items()
    }
    if _has_torch():
        from experiments.benchmarks import torch_twin

        model = torch_twin.random_bert(config)
        params |= {"backbone": torch_twin.weights_of(model, _backbone(config))}

        def twin(dtype, compiled=False):
            more = {"compiled": compiled, "bfloat16": dtype == "bfloat16"}
            return torch_twin.Twin(copy.deepcopy(model), params, batch, **more)

        def torch_step(*kind):
            return Form(twin(*kind).training)

        def check():
            with jax.default_matmul_precision("float32"), torch_twin.tf32(False):
                logits = np.asarray(jax.jit(exact.apply)(params, batch["ids"], batch["mask"]))
                step = timing.Training(recipes["float32"].loss, params, batch)
                step()
                start, stepped = params["backbone"], step.state.params["backbone"]
                return twin("float32").check(_backbone(config), logits, start, stepped)

        if not record.attempt("training/mlc/check", check):
            return
        for name, dtype in dtypes.items():
            for form, compiled in torch_twin.forms().items():
                step = partial(torch_step, dtype, compiled)
                allowed = partial(torch_twin.tf32, name == "tf32")
                builds[f"{form}/{name}"] = _within(allowed, step)
    record.compare("training/mlc", builds, 1e3, settings.repeats)


def draw(path: Path) -> None:
    """Draw the time per round of every form and size, and the least time as a line."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = json.loads(path.read_text())["results"]
    keys = [
        key for key in results if key.startswith("simulation/") and "median" in str(results[key])
    ]
    names = [key.split("/")[1:] for key in keys]
    sizes, forms = (list(dict.fromkeys(name[i] for name in names)) for i in (0, 1))
    figure, axes = plt.subplots(1, max(1, len(sizes)), figsize=(10, 3), squeeze=False)
    for ax, size in zip(axes[0], sizes, strict=False):
        for key, (_, form, precision) in zip(keys, names, strict=True):
            if key.split("/")[1] == size:
                style = {"color": COLOURS[precision], "marker": "|"}
                ax.plot(results[key]["quartiles"], [forms.index(form)] * 2, **style)
                ax.plot(results[key]["median"], forms.index(form), "o", color=COLOURS[precision])
        items, width = map(int, size.split("x"))
        for precision, colour in COLOURS.items():
            if {"limits/bandwidth", f"limits/{precision}"} <= set(results):
                measured = results["limits/bandwidth"], results[f"limits/{precision}"]
                least = timing.simulation("floor", items, width).seconds(*measured)
                ax.axvline(1e6 * max(least.values()), color=colour, label=f"least, {precision}")
        ax.set(xscale="log", title=f"{items:,} x {width:,}", xlabel="microseconds per round")
        ax.set_yticks(range(len(forms)), forms if ax is axes[0, 0] else [])
    axes[0, -1].legend(*axes[0, 0].get_legend_handles_labels(), fontsize=7)
    figure.savefig(path.with_suffix(".png"), dpi=160, bbox_inches="tight")
    plt.close(figure)


def main(arguments: list[str] | None = None) -> Path:
    """Run the command."""
    parts = {part.__name__: part for part in (limits, simulation, grid, encoders, training)}
    parser = argparse.ArgumentParser(description="How fast is jaxret on a GPU, against PyTorch?")
    parser.add_argument("--out", type=Path, required=True, help="folder of gpu.json and gpu.png")
    parser.add_argument("--small", action="store_true", help="tiny sizes, on any machine")
    parser.add_argument(
        "--parts", nargs="+", choices=list(parts), default=list(parts), help="to measure (all)"
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="for all parts together")
    chosen = parser.parse_args(arguments)
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")  # leaves half to PyTorch
    settings = SMALL if chosen.small else Settings()
    jax.config.update("jax_disable_most_optimizations", chosen.small)  # compiles faster
    chosen.out.mkdir(parents=True, exist_ok=True)
    more = {"machine": _machine(), "settings": settings._asdict()}
    record = Record(chosen.out / "gpu.json", 60 * chosen.minutes, **more)
    if not _has_torch():
        record.keep("missing", "torch", "torch and transformers are not both installed")
    for name in chosen.parts:
        record.part(name, SHARES[name], partial(parts[name], settings))
        draw(record.path)
    return record.path


def _within(context: Callable[[], AbstractContextManager], build: Build) -> Build:
    """Build and call a form inside a context that decides the precision of its products."""

    def built() -> Form:
        with context():
            form = build()

        def call():
            with context():
                return form.call()

        return form._replace(call=call)

    return built


def _precise(name: str, build: Build) -> Build:
    """Compute a JAX form's products in one of `PRECISIONS`."""
    return _within(partial(jax.default_matmul_precision, PRECISIONS[name]), build)


def _precisions() -> list[str]:
    """List those of `PRECISIONS` that this machine has, the fastest last."""
    return list(PRECISIONS) if jax.default_backend() == "gpu" else ["float32"]


def _same_items(problem: rounds.Problem) -> float:
    """Return the share of rounds in which scan and blocked form choose the same item."""
    with jax.default_matmul_precision(PRECISIONS["float32"]):
        (_, one), (_, other) = (form(problem).call() for form in (rounds.scan, rounds.blocked))
    return float((one.item == other.item).mean())


def _encoder(config: dict[str, Any], work: list, calls: dict[str, Callable]) -> float | None:
    """Add the forms of a BERT; return the largest difference from PyTorch's vectors."""
    backbone, gap, weights = _backbone(config), None, None
    arrays = [[jnp.asarray(ids), jnp.asarray(mask)] for _, ids, mask in work]

    def encoder(dtype):
        params = jax.tree.map(lambda x: jnp.asarray(x, dtype), weights)
        more: dict[str, Any] = {"spec": ENCODERS["minilm"], "directory": Path(), "sha256": None}
        return TextEncoder(**more, backbone=backbone, dtype=dtype, weights=params)

    if _has_torch():
        import torch

        from experiments.benchmarks import torch_twin

        model = torch_twin.random_bert(config)
        inputs = [[torch.tensor(x, device=model.device).long() for x in one[1:]] for one in work]
        weights = torch_twin.weights_of(model, backbone)
        exact = encoder("float32")
        with torch.inference_mode(), torch_twin.tf32(False):
            theirs = torch_twin.embed(model, *inputs[-1]).cpu().numpy()
        with jax.default_matmul_precision("float32"):
            gap = float(np.abs(exact.compiled(exact.params, *arrays[-1]) - theirs).max())
        if not gap < PARITY:
            raise AssertionError(f"vectors differ by {gap:.1e}: no comparison of times")
        half = model.to(torch.bfloat16)
        for name, compiled in torch_twin.forms().items():
            calls[name] = torch_twin.embedding(half, inputs, compiled=compiled)
    weights = weights or jax.jit(backbone.network().init)(jax.random.key(0))
    fast = encoder("bfloat16")

    def on_device():
        return jax.block_until_ready([fast.compiled(fast.params, *batch) for batch in arrays])

    calls |= {"jax": lambda: list(forward(fast, work)), "jax_device": on_device}
    return gap


def _config(hidden: int, layers: int, heads: int, words: int) -> dict[str, Any]:
    """Return the settings of a BERT as config.json names them."""
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    sizes |= {"vocab_size": words, "intermediate_size": 4 * hidden, "type_vocab_size": 2}
    return {**sizes, "max_position_embeddings": 512, "layer_norm_eps": 1e-12}


def _backbone(config: dict[str, Any]) -> Backbone:
    """Return jaxret's BERT of these settings."""
    return Backbone(bert.BertConfig.from_json(config), bert.Bert, bert.KEYS, "bert.")


def _has_torch() -> bool:
    """Tell whether there is PyTorch to compare with."""
    return all(util.find_spec(name) for name in ("torch", "transformers"))


def _machine() -> dict[str, Any]:
    """Describe the machine and the versions of what runs on it."""
    names = ["jax", "jaxlib", *(("torch", "transformers") if _has_torch() else ())]
    found: dict[str, Any] = {name: metadata.version(name) for name in names}
    found |= {"devices": [device.device_kind for device in jax.devices()], "cores": os.cpu_count()}
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv"]
    try:
        found["gpu"] = subprocess.check_output(query, text=True, timeout=20).splitlines()
    except (OSError, subprocess.SubprocessError):
        found["gpu"] = None
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
