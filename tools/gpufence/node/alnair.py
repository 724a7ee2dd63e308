"""Alnair's interfaces on a node: its registration socket, and a workspace for each container.

A client says `<cgroup path> <ALNAIR_ID>` and a newline, and is answered `ok` or why not. Whose
process it is, the kernel says: the path is not read, and the id must be that of its own container.
Owns these files and the socket; must not know who gives containers what.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import selectors
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gpufence.errors import ToolError

from . import homes
from .book import WHOLE, Grant

# Where a container finds them, whatever their places on the host are.
_SOCKET_PATH = "/run/alnair/alnair.sock"
_WORKSPACE_PATH = "/var/lib/alnair/workspace"
_ID = re.compile(r"[a-z0-9]{1,63}")
_CONTAINER = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_MOST_BYTES = 8192  # a path of the kernel's has at most 4096
_PATIENCE_S = 5.0
_PAUSE_S = 0.01
_MOST_NEW = 64  # connections between two pauses
_MOST_OPEN = 256
_CREDENTIALS = struct.Struct("iII")  # struct ucred: process, user, group


@dataclass(frozen=True, slots=True)
class Workspaces:
    """Where they are on the host: the socket's folder, and the folder of all workspaces."""

    run: Path
    root: Path

    def path(self, key: str) -> Path:
        """A container's workspace; its key is its ALNAIR_ID."""
        return self.root / key

    def mounts(self, key: str) -> list[tuple[str, str, bool]]:
        """Path in the container, path on the host, whether it is read-only.

        The socket comes by its folder: an agent that starts anew makes another one there.
        """
        return [
            (os.path.dirname(_SOCKET_PATH), str(self.run), True),
            (_WORKSPACE_PATH, str(self.path(key)), False),
        ]

    def variables(self, grant: Grant) -> dict[str, str]:
        """What Alnair's plugin tells a container."""
        return {
            "ALNAIR_ID": grant.key,
            "ALNAIR_SOCKET": _SOCKET_PATH,
            "ALNAIR_WORKSPACE_PATH": _WORKSPACE_PATH,
            "ALNAIR_VGPU_COMPUTE_PERCENTILE": str(grant.cores or WHOLE),
        }

    def fill(self, grant: Grant) -> None:
        """Write what Alnair's plugin writes before a container starts.

        Raises:
            OSError: it cannot be written.
        """
        namespace, pod, _ = grant.owner.split("/")
        self._put(grant.key, "limits", f"vmem:{grant.memory_bytes}")
        self._put(grant.key, "podInfo", f"podName:{pod}\nnamespace:{namespace}\n")

    def register(self, key: str, container: str, pids: Iterable[int]) -> None:
        """Write what Alnair's server writes for a process that registers.

        Raises:
            OSError: it cannot be written.
        """
        self._put(key, "cgroup.procs", "".join(f"{pid}\n" for pid in pids))
        self._put(key, "containerID", container)

    def _put(self, key: str, name: str, text: str) -> None:
        """Replace a file in a folder where a container's root may write, and follow no link."""
        os.makedirs(self.path(key), exist_ok=True)
        folder = os.open(self.path(key), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            draft = f".{name}.{secrets.token_hex(8)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(draft, flags, dir_fd=folder), "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(text)
            try:
                os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(draft, dir_fd=folder)
                raise
        finally:
            os.close(folder)


@dataclass(slots=True)
class _Client:
    """A connection: whose it is, what has come, and until when the rest has to come."""

    stream: socket.socket
    pid: int
    key: str
    until: float
    said: bytes = b""


@dataclass(slots=True)
class Registrar:
    """Answers at the socket; `homes` are the containers' state folders, by key, of this moment."""

    workspaces: Workspaces
    homes: Callable[[], Collection[tuple[str, Path]]]
    _listener: socket.socket = field(init=False)
    _ready: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _clients: dict[int, _Client] = field(default_factory=dict)

    def listen(self) -> None:
        """Make the socket anew.

        Raises:
            ToolError: exit 1, there can be none.
        """
        path = self.workspaces.run / os.path.basename(_SOCKET_PATH)
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            self._listener.bind(str(path))
            os.chmod(path, 0o666)  # containers' users differ
            self._listener.listen(_MOST_OPEN)
        except OSError as error:
            raise ToolError(
                what=f"no socket at '{path}'",
                why=(error.strerror or str(error)).lower(),
                fix="Name a folder that can be written to, with a short path, as alnair_dir",
            ) from None
        self._listener.setblocking(False)
        self._ready.register(self._listener, selectors.EVENT_READ)

    def serve(self, stopped: threading.Event) -> None:
        """Answer until `stopped` is set. Who asks much waits: there is a pause after each turn."""
        while not stopped.wait(_PAUSE_S):
            ready = [each.fd for each, _ in self._ready.select(timeout=0.5)]
            complete = [each for each in map(self._read, ready) if each]
            if complete:
                self._register(complete)
            if self._listener.fileno() in ready:
                self._accept()
            now = time.monotonic()
            for client in [each for each in self._clients.values() if each.until < now]:
                self._answer(client, "no line came")

    def _accept(self) -> None:
        known = {homes.identity(home): key for key, home in self.homes()}
        known.pop(None, None)
        for _ in range(_MOST_NEW):
            try:
                stream, _address = self._listener.accept()
            except OSError:
                return  # nobody waits, or it went, or there are too many open files just now
            stream.setblocking(False)
            told = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid = _CREDENTIALS.unpack(told)[0]
            # Even who is refused may first say its line: hung up on earlier, it would die of it.
            key = known.get(homes.seen_by(pid), "")
            client = _Client(stream, pid, key, time.monotonic() + _PATIENCE_S)
            self._clients[stream.fileno()] = client
            self._ready.register(stream, selectors.EVENT_READ)
            if len(self._clients) > _MOST_OPEN:
                self._make_room()

    def _make_room(self) -> None:
        """Hang up on the longest one of the container that has most of them."""
        counts = Counter(each.key for each in self._clients.values())
        most = counts.most_common(1)[0][0]
        longest = next(each for each in self._clients.values() if each.key == most)
        self._answer(longest, "too many connections at once")

    def _read(self, number: int) -> _Client | None:
        """The client, once its line is there; nothing for who goes, or says too much."""
        client = self._clients.get(number)
        if client is None:
            return None
        try:
            came = client.stream.recv(_MOST_BYTES)
        except OSError:
            came = b""
        client.said += came
        if b"\n" in client.said[:_MOST_BYTES]:
            return client
        if not came or len(client.said) >= _MOST_BYTES:
            self._answer(client, "no line came" if not came else "the line is too long")
        return None

    def _register(self, complete: Iterable[_Client]) -> None:
        """Those that ask at the same time share one look at the machine's processes."""
        spaces: dict[tuple[int, int] | None, list[int]] = {}
        for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
            spaces.setdefault(homes.identity(Path(f"/proc/{pid}/ns/mnt")), []).append(pid)
        for client in complete:
            space = homes.identity(Path(f"/proc/{client.pid}/ns/mnt"))
            self._answer(client, self._done(client, spaces.get(space, []) if space else []))

    def _done(self, client: _Client, pids: list[int]) -> str:
        if not client.key:
            return f"{_whose(client.pid)} has no GPU of this agent"
        line = client.said.partition(b"\n")[0].decode(errors="replace")
        identity = line.rpartition(" ")[2]
        if " " not in line or not _ID.fullmatch(identity):
            return "no line of a path, a blank and an ALNAIR_ID"
        if identity != client.key:
            return "that is another container's ALNAIR_ID"
        if client.pid not in pids:
            return f"{_whose(client.pid)} has ended"
        try:
            self.workspaces.register(client.key, _container(client.pid), pids)
        except OSError as error:
            return f"the workspace cannot be written: {(error.strerror or str(error)).lower()}"
        return "ok"

    def _answer(self, client: _Client, text: str) -> None:
        """Say it, as far as the client listens, and hang up."""
        if self._clients.pop(client.stream.fileno(), None):
            self._ready.unregister(client.stream)
        with client.stream, contextlib.suppress(OSError):
            client.stream.send(text.encode())


def start(
    workspaces: Workspaces,
    homes: Callable[[], Collection[tuple[str, Path]]],
    stopped: threading.Event,
) -> None:
    """Answer in a thread of its own, until `stopped` is set.

    Raises:
        ToolError: exit 1, there can be no socket.
    """
    made = Registrar(workspaces, homes)
    made.listen()
    threading.Thread(target=made.serve, args=(stopped,), daemon=True).start()
    print(f"gpufence: Alnair's socket is in {workspaces.run}", file=sys.stderr, flush=True)


def _whose(pid: int) -> str:
    return f"process {pid}" if pid > 0 else "a process that this agent does not see (hostPID)"


def _container(pid: int) -> str:
    """The container's id: 64 digits of its cgroup, else the last element of the path."""
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    if found := _CONTAINER.findall(text):
        return str(found[-1])
    paths = dict(line.split(":", 2)[1:] for line in text.splitlines() if line.count(":") > 1)
    last = os.path.basename(paths.get("memory") or paths.get("", ""))
    return last.removeprefix("docker-").removesuffix(".scope")
