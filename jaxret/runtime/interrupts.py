"""Interrupts that wait until a change is complete."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def held() -> Generator[None]:
    """Hold Ctrl-C and SIGTERM until the block ends, and then handle them.

    A handler that raises, as that of Ctrl-C does, would otherwise end a change in the middle. Only
    the main thread handles signals, so that other threads need not hold them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in SIGNALS}
    known = {number: handler for number, handler in before.items() if callable(handler)}
    for number in known:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in known.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)
