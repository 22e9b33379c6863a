"""The description of a machine and the measurements of its limits."""

import os
import resource
import sys
from types import SimpleNamespace

import pytest

from experiments.benchmarks import machine


def test_a_machine_says_what_it_is_and_measures_what_it_can_do():
    found = machine.measured(repeats=1, copied=2**12, side=32)
    assert found.cores >= 1
    assert found.processor in str(found)
    assert min(found.bandwidth, found.rate) > 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads the page faults of a Linux process")
def test_a_copy_takes_no_fresh_pages():
    """Fresh pages would cost more than the copy; only the first write to the target may fault."""
    numbers, before = 2**24, _faults()
    machine.copying(numbers, repeats=8)
    assert _faults() - before < 4 * 4 * numbers / resource.getpagesize()


def test_a_machine_is_a_line():
    known = machine.Machine("EPYC", 2, "0,3", "L2 1 MB", bandwidth=2.9e10, rate=2.1e11)
    line = "2 cores (CPUs 0,3) of EPYC, L2 1 MB, 29.0 GB/s in a copy, 210 GFLOP/s"
    assert str(known) == line
    assert str(known._replace(cpus="", caches="")).startswith("2 cores of EPYC, 29.0 GB/s")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_the_cpus_of_this_process_are_counted_and_named():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(before)})
        assert machine.cores() == 1
        assert machine._cpus() == str(max(before))
    finally:
        os.sched_setaffinity(0, before)
    assert machine.cores() == len(before)


def test_passes_in_place_take_as_long_as_they_move_bytes(monkeypatch):
    """Use a clock that advances one second for each pass over 4,000 bytes."""
    now = [0.0]

    def jit(f, donate_argnums):
        def call(x):
            assert x.nbytes == 4000
            now[0] += 1000  # the largest number of passes per call
            return f(x)

        return call

    monkeypatch.setattr(machine.jax, "jit", jit)
    monkeypatch.setattr(machine.time, "perf_counter", lambda: now[0])
    assert machine.in_place(4000, repeats=1) == 8000  # each byte is read and written


def test_pytorch_has_as_many_threads_as_xla(monkeypatch):
    threads = []
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=threads.append))
    monkeypatch.setattr(machine, "cores", lambda: 3)
    assert machine.pin_torch()
    assert threads == [3]
    monkeypatch.setitem(sys.modules, "torch", None)  # makes the import fail
    assert not machine.pin_torch()


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
