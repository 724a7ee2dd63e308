"""Commands of tools/ as processes that are forked from an interpreter which is warm already.

Most of a command's time goes by until Python has started and loaded modules, the same every time:
one interpreter does that once. A fork of it goes on as `python -m MODULE` would, and ends as an
interpreter ends. Tests of what Python does as it starts (closed streams, a locale, variables of its
own) need a start of their own, and so do those of what a module does as it is loaded.
Must not know what the commands do.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
SECONDS = 60
# What a command of tools/ needs; nothing else is inherited.
BARE = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPO / "tools")}

_SERVER = """
import ctypes, gc, importlib, json, os, pkgutil, runpy, socket, sys

HEAVY = ("gpufence.top.app", "gpufence.node.")


def load():
    for package in ("gpufence", "findsyms", "gen"):
        whole = importlib.import_module(package)
        for module in pkgutil.walk_packages(whole.__path__, f"{package}."):
            if not module.name.endswith(".__main__") and not module.name.startswith(HEAVY):
                importlib.import_module(module.name)
    # Each fork would copy all that by counting what refers to it, and free it at its end.
    loaded = gc.get_objects()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(loaded))
    gc.freeze()


def serve(door):
    # Returns in a fork only, with its module.
    while True:
        message, descriptors, _, _ = socket.recv_fds(door, 1 << 20, 3)
        if not message:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            door.close()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            return json.loads(message)
        for descriptor in descriptors:
            os.close(descriptor)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        door.sendall(f"{status}\\n".encode())


load()
asked = serve(socket.socket(fileno=int(sys.argv[1])))
os.chdir(os.fsencode(asked["cwd"]))
kept = {name: os.environ[name] for name in ("LC_CTYPE",) if name in os.environ}
os.environ.clear()
os.environ.update({**kept, **asked["env"]})
sys.argv = [asked["module"], *asked["words"]]
sys.path[0] = os.getcwd()
runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)
"""


class _Server:
    """The warm interpreter and the door through which it is asked."""

    def __init__(self) -> None:
        self.door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _SERVER, str(theirs.fileno())],
                env=BARE,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.door.settimeout(SECONDS)
        atexit.register(self.end)

    def end(self) -> None:
        """Kill it and what it is doing."""
        self.door.close()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@cache
def _server() -> _Server:
    return _Server()


def run(
    module: str,
    words: Sequence[str | bytes | Path],
    env: Mapping[str, str | bytes],
    *,
    text: bytes = b"",
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """`python -m MODULE WORD…` with tools/ on its path and just these variables.

    Raises:
        TimeoutError: it did not end within `SECONDS`, and was killed.
    """
    asked = {
        "module": module,
        "words": [os.fsdecode(word) for word in words],
        "env": {name: os.fsdecode(value) for name, value in env.items()},
        "cwd": str(cwd or Path.cwd()),
    }
    server = _server()
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as error,
    ):
        given.write(text)
        given.seek(0)
        streams = [given.fileno(), out.fileno(), error.fileno()]
        socket.send_fds(server.door, [json.dumps(asked).encode()], streams)
        try:
            status = int(server.door.recv(64))
        except TimeoutError:
            server.end()
            _server.cache_clear()
            raise
        out.seek(0)
        error.seek(0)
        return subprocess.CompletedProcess([module, *words], status, out.read(), error.read())
