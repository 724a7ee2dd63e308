"""Programs that start without a pause while `gpufence install` replaces the library they preload.

    install_storm.py FOLDER VERSIONS PRELOAD

FOLDER is installed into; each folder in VERSIONS holds a library; PRELOAD is a file such as
/etc/ld.so.preload, or "" for programs that are started with LD_PRELOAD. Prints one JSON object:
how many programs were started, how many ran without the library, and what they complained of.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gpufence.commands import install

_ROUNDS = 30
_STARTERS = 2


@dataclass(slots=True)
class Storm:
    """Threads that start one program after the other, and what they saw."""

    environment: dict[str, str]
    stop: threading.Event = field(default_factory=threading.Event)
    fenced: list[bool] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def start_programs(self) -> None:
        """Until `stop`: each says which files it has mapped."""
        while not self.stop.is_set():
            words = ["/bin/cat", "/proc/self/maps"]
            done = subprocess.run(words, env=self.environment, capture_output=True, check=False)
            self.fenced.append(b"/libgpufence.so" in done.stdout)
            if done.stderr:
                self.complaints.append(done.stderr.decode())

    def during(self, work: Callable[[], None]) -> None:
        """Call it while programs start, at least one for each starter."""
        threads = [threading.Thread(target=self.start_programs) for _ in range(_STARTERS)]
        for thread in threads:
            thread.start()
        try:
            work()
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()


def main(folder: Path, versions: Path, preload: Path | None) -> None:
    """Install each version in turn, again and again."""
    libraries = [str(path / "libgpufence.so") for path in sorted(versions.iterdir())]
    preloaded = {} if preload else {"LD_PRELOAD": str(folder / "libgpufence.so")}
    storm = Storm({"PATH": os.environ["PATH"], **preloaded})
    install.install(folder, libraries[0], preload)

    def replace() -> None:
        for _ in range(_ROUNDS):
            for library in libraries:
                install.install(folder, library, preload)

    storm.during(replace)
    seen = {"started": len(storm.fenced), "unlimited": storm.fenced.count(False)}
    print(json.dumps({**seen, "complaints": storm.complaints}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3] else None)
