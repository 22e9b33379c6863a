"""What a machine is and can do, as benchmarks print it."""

import pytest

from experiments.benchmarks import machine


def test_a_machine_says_what_it_is_and_measures_what_it_can_do():
    found = machine.measured(repeats=1, copied=2**12, side=32)
    assert found.cores >= 1
    assert found.processor in str(found)
    assert min(found.bandwidth, found.rate) > 0


@pytest.mark.parametrize(
    ("read", "operations", "expected"),
    [(2e9, 1e9, (2.0, "memory")), (1e9, 3e10, (3.0, "arithmetic"))],
)
def test_the_slower_of_memory_and_arithmetic_is_the_limit(read, operations, expected):
    known = machine.Machine("one", 1, "", bandwidth=1e9, rate=1e10)
    assert known.floor(read=read, operations=operations) == expected
