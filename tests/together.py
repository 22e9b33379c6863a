"""Runs several real processes of one program on this machine, and ends all of them."""

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[1]


class Processes(list[subprocess.Popen]):
    """The processes in order of their index, and files with their output."""

    def __init__(self, folder: Path):
        super().__init__()
        self.folder = folder

    def said(self) -> str:
        return "\n".join(
            f"--- process {i}, {one.poll()}:\n{self.log(i).read_text()[-4000:]}"
            for i, one in enumerate(self)
        )

    def log(self, index: int) -> Path:
        return self.folder / f"process_{index}.txt"

    def end(self, seconds: float) -> list[int]:
        """Return all exit statuses; fail the test if this takes longer than ``seconds``."""
        until = time.monotonic() + seconds
        while any(one.poll() is None for one in self):
            if time.monotonic() > until:
                pytest.fail(f"not ended after {seconds} s\n{self.said()}")
            time.sleep(0.05)
        return [one.returncode for one in self]


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def slurm(count: int) -> list[dict[str, str]]:
    """Return the environment that SLURM sets for each of several processes on this machine."""
    first = 2**16 - 2**12  # JAX's port: this + the last 12 bits of the job id
    port = 0
    while not port:
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", random.randrange(first, 2**16)))
            port = found.getsockname()[1]
    job = {
        "SLURM_JOB_ID": str(2**12 + port - first),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": str(count),
        "JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}",  # only this machine
    }
    return [job | {"SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)} for i in range(count)]


@contextmanager
def started(
    command: Sequence[str],
    folder: Path,
    count: int,
    *,
    devices: int = 1,
    each: Sequence[Mapping[str, str]] | None = None,
    **environment: str,
) -> Iterator[Processes]:
    """Start ``python -m *command`` in ``count`` connected processes; kill them at the end.

    The processes write their output to files in ``folder``. A single process runs without a
    coordinator; ``each`` replaces the variables by which JAX connects several.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = {
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.values["jax_compilation_cache_dir"]),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # as in this suite
        "PYTHONPATH": str(ROOT),
        **environment,
    }
    if each is None:
        known = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}"}
        known["JAX_NUM_PROCESSES"] = str(count)
        each = [known | {"JAX_PROCESS_ID": str(i)} if count > 1 else {} for i in range(count)]
    processes = Processes(folder)
    try:
        for own in each:
            index = len(processes)
            with processes.log(index).open("w") as log:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", *command],
                        cwd=ROOT,
                        env=os.environ | names | own,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
        yield processes
    finally:
        for one in processes:
            one.kill()
            one.wait()


def run(
    command: Sequence[str], folder: Path, count: int, *, seconds: float = 600, **how
) -> list[str]:
    """Run processes until all of them succeed; return the output of each."""
    with started(command, folder, count, **how) as processes:
        status = processes.end(seconds)
        assert status == [0] * count, processes.said()
        return [processes.log(i).read_text() for i in range(count)]
