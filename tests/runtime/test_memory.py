"""Reuse of memory: after a few calls, a program causes no page faults."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource, sys
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: small pages, whatever is usual here
from jaxret.runtime import memory
if sys.argv[1] == "kept":
    assert memory.retain_freed_memory()
import jax, jax.numpy as jnp

@jax.jit
def program(x):  # with a temporary matrix of 151 MB
    return jnp.outer(x, x) @ x

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    program(x).block_until_ready()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

x = jnp.full(6144, 1e-3)
print(min([faults() for _ in range(12)]))
"""


def page_faults(kept):
    command = [sys.executable, "-c", PROGRAM, kept]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has an option to keep freed memory")
def test_a_program_finds_the_memory_of_its_last_call():
    pages = 6144 * 6144 * 4 // 4096
    assert page_faults("freed") > 0.9 * pages  # otherwise the test would be void
    assert page_faults("kept") < 0.1 * pages
