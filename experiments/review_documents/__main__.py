"""Do people agree with the profiles?                                  (Tool-REX, Appendix C)

    uv run python -m experiments.review_documents RUN --reviewer A

RUN is the directory of a finished `experiments.expand_documents`. Opens a page on this machine
(127.0.0.1) that shows the sampled tools, documentation beside profile, with the paper's four
questions and a verdict; the page lists its keys. Answers are appended to RUN/reviews.jsonl; close
with Ctrl-C or SIGTERM, and continue later with the same command. For an ssh tunnel, give
``--no-open`` and a port.

The paper: 100 regenerated profiles, all of which passed.
"""

import argparse
import signal
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from experiments.review_documents.page import Review, summary


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the page until it is ended; print the shares that passed and of each problem."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="directory of a finished expand_documents")
    parser.add_argument(
        "--reviewer", default="", help="name in every answer; two reviewers may share a directory"
    )
    parser.add_argument("--port", type=int, default=0, help="port of the page; 0: any free port")
    parser.add_argument("--no-open", action="store_true", help="does not open the browser")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # background jobs get no Ctrl-C
    sample, results = given.run / "sample.jsonl", given.run / "reviews.jsonl"
    try:
        review = Review(sample, results, reviewer=given.reviewer, port=given.port)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    with review:
        print(f"{review.url} (Ctrl-C ends it)", flush=True)
        if not given.no_open:
            webbrowser.open(review.url)
        review.serve()
    print(", ".join(f"{name} {value:.3g}" for name, value in summary(results).items()))


if __name__ == "__main__":
    main()
