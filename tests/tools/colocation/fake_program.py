"""A tenant without a GPU: `fake_program.py KIND [LOG]` speaks the bench's protocol, or fails at it.

Kinds: fine; dies (before it is ready); silent (from "go" on, with a child of its own); babbles.
LOG gets a line for each step that it takes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

kind, log = sys.argv[1], Path(os.environ["FAKE_LOG"])


def note(step: str) -> None:
    """Appends a line, whole."""
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{kind} {step} {os.getpid()}\n")


def say(line: str) -> None:
    """To the bench."""
    print(line, flush=True)


note("loaded")
say("loaded")
assert sys.stdin.readline() == "prepare\n"
note("prepares")
if kind == "dies":
    sys.exit("no memory left")
say("ready" if kind != "babbles" else "hello")
settings = {name: text for name, text in os.environ.items() if name.startswith("GPUFENCE_")}
words = {"settings": settings, "words": sys.argv[1:]}
for rate, line in enumerate(sys.stdin, start=1):
    go, seconds, delay = line.split()
    note("goes")
    if kind == "silent":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        note(f"child {child.pid}")
        time.sleep(60)
    time.sleep(float(seconds))
    say(json.dumps({"rate": float(rate), "delay": float(delay), **words}))
