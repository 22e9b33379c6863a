"""How fast does a live index search and learn, alone and with 16 threads?

    uv run python -m experiments.benchmarks.serving                          # 2 idle cores: 5 min
    uv run python -m experiments.benchmarks.serving --minutes 10             # and a load test

For 500 and 43,215 tools (random unit vectors of 384) and for ``greedy`` and ``mixture``: the median
and the 99th percentile in milliseconds of a search with k = 5 and of the feedback on it, by one
thread and by 16 that share the index, where a call waits for those of others.

    <tools>/<learner>/first_search     seconds, in a new index; less if its program is cached
    <tools>/<learner>/search           given vectors
    <tools>/<learner>/text_search      given texts, which MiniLM encodes
    <tools>/<learner>/batch            64 texts in one call / 64 calls
    <tools>/<learner>/memory           of the process, in MB

The load test searches, answers and logs in 16 threads, and checks that no answer is lost and that
memory grows by at most a tenth after the first 30 % of the time.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import jax
import numpy as np

import jaxret as jr
from experiments.benchmarks import machine
from experiments.benchmarks.rounds import unit_rows
from jaxret.data import deskbank
from jaxret.encoders import TextEncoder

TOOLS = (500, 43_215)
LEARNERS = {"greedy": jr.greedy, "mixture": jr.mixture}
THREADS, WIDTH, MANY = 16, 384, 64
MB = 1.024e6  # bytes in a thousand kB, as Linux counts them


unit = partial(unit_rows, width=WIDTH)


def timed(call: Callable[[int], object], numbers: range) -> list[float]:
    """Time a call for each number, in milliseconds."""
    found = []
    for n in numbers:
        begin = time.perf_counter()
        call(n)
        found.append(1e3 * (time.perf_counter() - begin))
    return found


def shared(call: Callable[[int], object], rounds: int) -> list[float]:
    """Time a call in 16 threads, ``rounds`` times in all."""
    parts = [range(i, rounds, THREADS) for i in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        return [x for part in pool.map(lambda some: timed(call, some), parts) for x in part]


def quantiles(values: list[float]) -> str:
    """Write the median and the 99th percentile."""
    middle, high = np.quantile(values, [0.5, 0.99])
    return f"p50 {middle:8.2f}  p99 {high:8.2f} ms"


def measure(items: int, name: str, rounds: int, texts: list[str], encoder: TextEncoder) -> None:
    """Print the times of one learner and size."""
    theta, queries = unit(items), unit(256, seed=1)
    task = jr.Task.from_arrays(theta, queries[:1], [0], name="random")
    index, title = jr.Index(LEARNERS[name](), task), f"{items}/{name}"
    index.encoder = encoder
    begin = time.perf_counter()
    index.search(queries[0], k=5)
    print(f"{title}/first_search  {time.perf_counter() - begin:.2f} s", flush=True)
    index.feedback(index.search(queries[0], k=5), worked=True)
    tickets: dict[int, jr.Ticket] = {}

    def search(n):
        tickets[n] = index.search(queries[n % len(queries)], k=5)

    def feedback(n):
        index.feedback(tickets.pop(n), worked=n % 2)

    for who, run in {
        "alone": lambda call: timed(call, range(rounds)),
        f"{THREADS} threads": lambda call: shared(call, rounds),
    }.items():
        for kind, call in {"search": search, "feedback": feedback}.items():
            print(f"{title}/{kind}, {who}:  {quantiles(run(call))}", flush=True)

    def text_search(n):
        index.search(texts[n % len(texts)], k=5)

    for size in (1, MANY):  # compile
        index.search(texts[:size], k=5)
        text_search(0)
    print(f"{title}/text_search, alone:  {quantiles(timed(text_search, range(MANY)))}")
    print(f"{title}/text_search, 16 threads:  {quantiles(shared(text_search, MANY))}")
    for kind, asked in {"texts": texts[:MANY], "vectors": list(queries[:MANY])}.items():
        index.search(asked, k=5)
        one = sum(timed(lambda n, asked=asked: index.search(asked[n], k=5), range(MANY)))
        many = np.median(timed(lambda _, asked=asked: index.search(asked, k=5), range(3)))
        print(f"{title}/batch of {MANY} {kind}:  {many:.1f} ms, {many / one:.3f} of single calls")
    print(f"{title}/memory  {machine.memory('VmRSS') / MB:,.0f} MB", flush=True)


def load_test(minutes: float, items: int) -> None:
    """Serve for some minutes in 16 threads with a log; raise if an answer is lost.

    Args:
      minutes: length of the test.
      items: number of tools.

    Raises:
      AssertionError: if answers are lost, or memory grows by more than a tenth.
    """
    queries, sizes, stop = unit(256, seed=1), [], threading.Event()
    task = jr.Task.from_arrays(unit(items), queries[:1], [0], name="random")
    with tempfile.TemporaryDirectory() as folder:
        index = jr.Index(jr.greedy(), task, log=Path(folder) / "log.jsonl", open_tickets=1000)

        def serve(thread):
            done = 0
            while not stop.is_set():
                ticket = index.search(queries[(done + thread) % len(queries)], k=5)
                if done % 3:  # a third is never answered and expires
                    index.feedback(ticket, worked=done % 2)
                done += 1
            return sum(1 for n in range(done) if n % 3)

        with ThreadPoolExecutor(THREADS) as pool:
            running = [pool.submit(serve, thread) for thread in range(THREADS)]
            for _ in range(20):
                time.sleep(3 * minutes)
                sizes.append(machine.memory("VmRSS") / MB)
            stop.set()
            answers = sum(one.result() for one in running)
        index.close()
        size = f"memory {sizes[5]:,.0f} to {sizes[-1]:,.0f} MB"
        print(f"load: {index}, {answers:,} acknowledged, {size}")
        if int(index.state.t) != answers:
            raise AssertionError(
                f"{answers} answers were acknowledged, {int(index.state.t)} learnt"
            )
        if sizes[-1] > 1.1 * sizes[5]:
            raise AssertionError(f"memory grew: {sizes}")


def main() -> None:
    """Parse the arguments, and print all measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    shown = " ".join(map(str, TOOLS))
    parser.add_argument(
        "--tools", type=int, nargs="+", default=TOOLS, help=f"sizes of the index ({shown})"
    )
    parser.add_argument(
        "--learners", nargs="+", default=[*LEARNERS], choices=[*LEARNERS], help="to measure (all)"
    )
    parser.add_argument("--rounds", type=int, default=400, help="searches by one thread, or by 16")
    parser.add_argument("--minutes", type=float, default=0.0, help="of the load test")
    given = parser.parse_args()
    print(machine.measured(), f"jax {jax.__version__}", flush=True)
    encoder, texts = jr.load_encoder("minilm"), list(deskbank.load().queries[:256])
    for items in given.tools:
        for name in given.learners:
            measure(items, name, given.rounds, texts, encoder)
    if given.minutes:
        load_test(given.minutes, given.tools[0])


if __name__ == "__main__":
    main()
