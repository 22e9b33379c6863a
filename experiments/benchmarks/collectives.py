"""What devices send each other in a compiled program: read from its text, counted with its loops.

exchanges = read(jax.jit(f).lower(..).compile().as_text())
sum(e.times * e.bytes for e in exchanges)      # bytes that each device gives
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\) -> .* \{$")
_EXCHANGE = re.compile(rf" = (.*?) ({'|'.join(KINDS)})(?:-start)?\((.*?)\), ")
_ALONE = re.compile(r"replica_groups=(?:\{\{\d+\}|\[\d+,1\])")
_ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_ONCE = re.compile(r"\b(?:to_apply|calls)=%?([\w.-]+)")
_BRANCHES = re.compile(
    r"\b(?:branch_computations=\{(.*?)\}|(?:true|false)_computation=%?([\w.-]+))"
)


class Exchange(NamedTuple):
    """One collective operation of a program."""

    kind: str  # of `KINDS`
    bytes: int  # of its result, on one device
    times: int  # how often a call of the program runs it


def read(program: str) -> list[Exchange]:
    """The collective operations of a compiled program.

    Of the branches of a condition the one that sends most counts.

    Args:
      program: its text, as XLA prints it after optimisation.

    Raises:
      ValueError: where a loop that sends something does not say how often it runs.
    """
    bodies: dict[str, list[str]] = {}
    entry = name = None
    for line in program.splitlines():
        if head := _HEAD.match(line):
            name = head[2]
            bodies[name] = []
            entry = name if head[1] else entry
        elif name is not None:
            bodies[name].append(line)
    if entry is None:
        raise ValueError("no ENTRY: give the text of a compiled program")
    return list(_of(entry, 1, bodies))


def _of(name: str, times: int, bodies: dict[str, list[str]]) -> Iterator[Exchange]:
    for line in bodies.get(name, ()):
        if _ALONE.search(line):
            continue  # groups of one device
        if found := _EXCHANGE.search(line):
            yield Exchange(found[2], _bytes(found[1]), times)
        elif " while(" in line:
            inside = list(_of(_named(r"\bbody=%?([\w.-]+)", line), times, bodies))
            trips = _TRIPS.search(line)
            if inside and trips is None:
                raise ValueError(f"how often does this loop run? {line.strip()[:80]}")
            count = int(trips[1]) if trips else 0
            yield from (e._replace(times=e.times * count) for e in inside)
        elif " conditional(" in line:
            names = [word for pair in _BRANCHES.findall(line) for word in pair if word]
            names = [word.strip(" %") for names_ in names for word in names_.split(",")]
            yield from max((list(_of(n, times, bodies)) for n in names), key=_sent)
        elif called := _ONCE.search(line):
            yield from _of(called[1], times, bodies)


def _sent(exchanges: list[Exchange]) -> int:
    return sum(e.times * e.bytes for e in exchanges)


def _named(pattern: str, line: str) -> str:
    found = re.search(pattern, line)
    assert found is not None
    return found[1]


def _bytes(shapes: str) -> int:
    """Of arrays as the program writes them: ``f32[8,1]{1,0}``, or several."""
    return sum(
        math.prod(map(int, filter(None, dims.split(",")))) * max(1, int(bits or 8) // 8)
        for _, bits, dims in _ARRAY.findall(shapes)
    )
