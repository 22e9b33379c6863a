"""Serves a language model on this machine.

python -m experiments.local_llm start          downloads, checks and starts it; prints its use
python -m experiments.local_llm status
python -m experiments.local_llm stop
python -m experiments.local_llm fetch          only downloads the weights
python -m experiments.local_llm answers        restores its stored answers about DeskBank
"""

import argparse
import sys

from experiments.local_llm import answers, server
from experiments.local_llm.server import NAME, weights
from jaxret.encoders import cache_directory

HOW = """{name} answers at {url} ({slots} questions side by side, {tokens:,} tokens each).
Ask it from any experiment that asks language models:

    export OPENAI_API_KEY=local
    ... llm.base_url={url} llm.model={name} llm.timeout=600 llm.concurrency={slots}

It is stopped by: python -m experiments.local_llm stop --port {port}"""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = ["start", "status", "stop", "fetch", "answers"]
    parser.add_argument("action", choices=actions, help="what to do, as shown above")
    defaults = server.Settings()
    helps = {
        "port": "port of the server",
        "slots": "number of questions answered at the same time",
        "context": "number of tokens that all slots share",
        "threads": "number of processor threads",
        "program": "command of a compiled llama-server, used instead of the wheel's",
    }
    for name, value in defaults._asdict().items():
        shown = f"{helps[name]} ({value})" if value else helps[name]
        parser.add_argument(f"--{name}", type=type(value), default=value, help=shown)
    arguments = vars(parser.parse_args())
    action = arguments.pop("action")
    try:
        print(act(action, server.Settings(**arguments)))
    except (server.ServerError, OSError, RuntimeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def act(action: str, settings: server.Settings) -> str:
    """Perform an action, and return a message about the state."""
    port = settings.port
    if action == "fetch":
        return str(weights())
    if action == "answers":
        cache = cache_directory() / "llm"
        return f"{answers.unpack(answers.FILE, cache):,} new answers in {cache}"
    if action == "stop":
        return "stopped" if server.stop(port) else f"no server of ours at port {port}"
    if action == "status":
        if server.running(port) is None:
            return f"no server of ours at port {port}"
        return f"{server.base_url(port)} answers: {server.check(port)}"
    url = server.start(settings)
    return HOW.format(
        name=NAME,
        url=url,
        port=port,
        slots=settings.slots,
        tokens=settings.context // settings.slots,
    )


if __name__ == "__main__":
    main()
