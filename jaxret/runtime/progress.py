"""Progress on standard error: a bar on a terminal, an occasional line elsewhere."""

import time

from tqdm import tqdm

EVERY = 30.0  # seconds between two lines without a terminal


class Progress(tqdm):
    """A `tqdm.tqdm` that prints one line per `EVERY` seconds if there is no terminal."""

    def __init__(self, *args, **kwargs):
        self._next_line = time.monotonic() + EVERY
        super().__init__(*args, **kwargs)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        if self.fp.isatty():
            return super().display(msg, pos)
        if msg is None and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + EVERY
            self.fp.write(f"{self}\n")
        return True

    def close(self) -> None:
        if self.disable or self.fp.isatty():
            return super().close()
        self.disable = True
        self._decr_instances(self)
        if self.leave:
            self.fp.write(f"{self}\n")
