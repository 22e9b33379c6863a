"""Do people agree with the profiles?                                  (Tool-REX, Appendix C)

    uv run python -m experiments.review_documents run=RUN reviewer=A

RUN is the directory of a finished `experiments.expand_documents`. Opens a page on this machine
(127.0.0.1) that shows the sampled tools, documentation beside profile, with the paper's four
questions and a verdict; the page lists its keys. Answers are appended to RUN/reviews.jsonl; close
with Ctrl-C or SIGTERM, and continue later with the same command. For an ssh tunnel, set open=false
and a port.

The paper: 100 regenerated profiles, all of which passed.
"""

import signal
import webbrowser
from pathlib import Path

from omegaconf import DictConfig

from experiments.common.experiment import command
from experiments.review_documents.page import Review, summary


@command("review_documents")
def main(cfg: DictConfig) -> dict[str, float]:
    """Serve the page until it is ended; return the shares that passed and of each problem."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # background jobs get no Ctrl-C
    run = Path(cfg.run)
    results = run / "reviews.jsonl"
    with Review(run / "sample.jsonl", results, reviewer=cfg.reviewer, port=cfg.port) as review:
        print(f"{review.url} (Ctrl-C ends it)", flush=True)
        if cfg.open:
            webbrowser.open(review.url)
        review.serve()
    found = summary(results)
    print(", ".join(f"{name} {value:.3g}" for name, value in found.items()))
    return found


if __name__ == "__main__":
    main.cli()
