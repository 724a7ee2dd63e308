"""A look that is repeated by a thread of its own while something else happens.

Must not know what is looked at.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(look: Callable[[], None], every_s: float) -> Iterator[None]:
    """Looks at once and then every so often; the last look has ended behind it."""
    ends = threading.Event()

    def look_on() -> None:
        look()
        while not ends.wait(every_s):
            look()

    thread = threading.Thread(target=look_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
