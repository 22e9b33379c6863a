"""The server, run by `server.start` in its own environment with xllamacpp.

It answers ``/v1/chat/completions`` until it is terminated.
"""

import argparse
import signal
import threading

import xllamacpp  # ty: ignore[import-not-found]  # of an environment of its own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "alias"):
        parser.add_argument(f"--{name}", required=True, help="of the model")
    for name in ("port", "context", "slots", "threads"):
        parser.add_argument(f"--{name}", type=int, required=True, help="of the server")
    arguments = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = arguments.model, {arguments.alias}
    params.hostnames, params.port = ["127.0.0.1"], arguments.port
    params.n_ctx, params.n_parallel = arguments.context, arguments.slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = arguments.threads
    params.n_gpu_layers, params.use_jinja, params.ui = 0, True, False
    server = xllamacpp.Server(params)
    print(f"listening at {server.listening_address}", flush=True)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()


if __name__ == "__main__":
    main()
