"""The command: `python -m experiments.benchmarks.gpu --out DIR`; see the package's docstring.

``--draw DIR/gpu.json`` draws the figures of an earlier run, whole or not, beside its file.
"""

import argparse
import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

NEEDED = ("jax", "flax", "optax", "orbax.checkpoint", "numpy", "scipy", "jaxtyping", "lazy_loader")
NEEDED += ("tokenizers", "huggingface_hub", "safetensors", "tqdm", "rich", "matplotlib")
WANTED = ("torch", "transformers")  # without them there is nothing to be held against
#: part -> its share of the time that is left when it begins
SHARES = {
    "limits": 0.1,
    "simulation": 0.5,
    "grid": 0.3,
    "encoders": 0.4,
    "training": 0.4,
    "sweeps": 0.5,
    "agreement": 0.5,
    "rules": 0.7,
    "precisions": 0.9,
}


def main(arguments: list[str] | None = None) -> Path:
    """Runs the parts, or draws what they gave; returns the path of the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    does = parser.add_mutually_exclusive_group(required=True)
    does.add_argument("--out", type=Path, help="folder for gpu.json and figures")
    does.add_argument("--draw", type=Path, help="a gpu.json whose figures are wanted anew")
    parser.add_argument("--small", action="store_true", help="tiny sizes, on any machine")
    parser.add_argument("--parts", default=",".join(SHARES), help="some of them, in order")
    parser.add_argument("--minutes", type=float, default=7.5, help="in all")
    chosen = parser.parse_args(arguments)
    if chosen.draw is not None:
        print(*drawn(chosen.draw), sep="\n")
        return chosen.draw
    parts = chosen.parts.split(",")
    if unknown := sorted(set(parts) - set(SHARES)):
        parser.error(f"--parts: unknown {unknown}; known: {', '.join(SHARES)}")
    if absent := [name for name in NEEDED if not found(name)]:
        parser.error(f"not installed here: {', '.join(absent)}")
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")  # PyTorch wants some, too
    chosen.out.mkdir(parents=True, exist_ok=True)
    return run(chosen.out / "gpu.json", parts, small=chosen.small, minutes=chosen.minutes)


def found(name: str) -> bool:
    """Whether a module is installed; imports its parents alone."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def drawn(path: Path) -> list[Path]:
    """Draws a file's figures beside it; returns their paths."""
    from experiments.benchmarks.gpu import figures  # it imports jax, for which `main` sets a limit

    return figures.draw(path)


def run(path: Path, parts: list[str], *, small: bool, minutes: float) -> Path:
    """All parts, after each the figures of what there is: the machine may go before the next."""
    import jax

    from experiments.benchmarks.gpu import (
        agreement,
        encoders,
        grid,
        limits,
        rules,
        simulation,
        training,
        trial,
    )
    from experiments.benchmarks.gpu.record import Record
    from experiments.benchmarks.gpu.settings import FULL, SMALL, by_name

    settings = SMALL if small else FULL
    if small:  # most of its time is compilation
        jax.config.update("jax_disable_most_optimizations", True)
    said = {"small": small, "settings": by_name(settings)}
    record = Record(path, seconds=60 * minutes, machine=machine(), **said)
    if absent := [name for name in WANTED if not found(name)]:
        record.leave_out("torch", f"not installed here: {', '.join(absent)}")
    if not small:
        settings = settings._replace(broken=trial.broken(record))
    runs = {
        "limits": limits.measure,
        "simulation": simulation.measure,
        "grid": grid.measure,
        "agreement": agreement.measure,
        "encoders": encoders.measure,
        "training": training.measure,
        "rules": rules.measure,
        "sweeps": simulation.sweep,
        "precisions": simulation.others,
    }
    for part in parts:
        record.part(part, SHARES[part], lambda kept, part=part: runs[part](settings, kept))
        try:
            drawn(path)
        except Exception as error:  # no picture is worth the parts that follow
            record.leave_out(f"figures/{part}", f"failed: {type(error).__name__}: {error}")
    return path


def machine() -> dict[str, object]:
    """What it is and what runs on it."""
    import jax
    import jaxlib

    versions = {"python": platform.python_version(), "jax": jax.__version__}
    versions |= {"jaxlib": jaxlib.__version__}
    for name in filter(found, WANTED):
        versions[name] = importlib.import_module(name).__version__
    said: dict[str, object] = {
        "devices": [one.device_kind for one in jax.devices()],
        "versions": versions,
    }
    said |= {"cores": os.cpu_count(), "processor": platform.processor() or platform.machine()}
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv"]
        said["nvidia_smi"] = subprocess.check_output(query, text=True, timeout=20).splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        said["nvidia_smi"] = f"none: {type(error).__name__}"
    return said


if __name__ == "__main__":
    main(sys.argv[1:])
