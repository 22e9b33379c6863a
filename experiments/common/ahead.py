"""What takes long to make, one ahead: the next learner's programs compile while this one runs."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax

Item, Made = TypeVar("Item"), TypeVar("Made")


def ahead(make: Callable[[Item], Made], items: Sequence[Item]) -> Iterator[tuple[Item, Made]]:
    """Each item with what is made of it, in order.

    The next one is made in a thread while the caller is busy. Among several processes nothing is
    made ahead: all have to compute the same in the same order.
    """
    if jax.process_count() > 1:
        yield from ((item, make(item)) for item in items)
        return
    with ThreadPoolExecutor(1) as thread:
        coming = [thread.submit(make, item) for item in items[:1]]
        for number, item in enumerate(items):
            made = coming.pop().result()
            coming = [thread.submit(make, after) for after in items[number + 1 : number + 2]]
            yield item, made
