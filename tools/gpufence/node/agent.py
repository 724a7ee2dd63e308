"""The agent's process: serves its plugins, registers them, and again when the kubelet is new.

Owns sockets' places and the loop; must not know what is given out. Imported only when it runs.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpufence.errors import ToolError, one_line

from . import (
    agents,
    alnair,
    checkpoint,
    desk,
    dra,
    enforcer,
    hypervisor,
    messages,
    own_gpus,
    plugin,
    steering,
    wire,
)
from .boxes import Boxes
from .config import Config
from .desk import Desk, Listed
from .gpus import Gpu, of_machine

_KUBELET = "kubelet.sock"
_POLL_SECONDS = 0.5
# A kubelet answers a registration, and then tries for 10 seconds to reach the plugin. Where that
# fails, or the connection breaks later, it gives none of the units out, and tells nobody.
_WATCH_SECONDS = 12.0
_CHECKPOINTS = {
    "device-plugin": desk.CHECKPOINT,
    "dra": own_gpus.CHECKPOINT,
    "enforcer": enforcer.CHECKPOINT,
}


@dataclass(slots=True)
class Kubelet:
    """The kubelet of this node, as it was when the plugins were registered."""

    config: Config
    clock: Callable[[], float] = time.monotonic
    identity: tuple[int, int] | None = None
    met_at: float = 0.0
    told: str = ""

    @property
    def socket(self) -> Path:
        """Where plugins register."""
        return Path(self.config.plugin_dir) / _KUBELET

    def now(self) -> tuple[int, int] | None:
        """Which socket is there: another one for each start of the kubelet."""
        try:
            found = self.socket.stat()
        except OSError:
            return None
        return found.st_ino, found.st_ctime_ns

    def settled(self) -> bool:
        """Whether it has run for so long that it knows all of its pods again."""
        return self.identity is not None and (
            self.clock() - self.met_at >= self.config.settle_seconds
        )

    def containers(self, resources: Collection[str]) -> Sequence[Listed]:
        """Those that have units of ours.

        Raises:
            ToolError: exit 1, when it does not tell.
        """
        path = Path(self.config.pod_resources)
        try:
            answer = wire.call(
                path,
                messages.POD_RESOURCES,
                "List",
                lambda known: known["ListPodResourcesRequest"](),
            )
        except wire.CallError as error:
            raise ToolError(
                what=f"the kubelet's list of pods at '{path}' not read",
                why=str(error),
                fix="Mount /var/lib/kubelet/pod-resources into the agent",
            ) from None
        return plugin.listed(answer, resources)


def run(config: Config, library: str, preload: str) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ToolError: 1, 2 or 3, as `gpufence node` documents.
    """
    gpus = _gpus(config)
    folder = Path(config.folder)
    folder.mkdir(parents=True, exist_ok=True)
    with agents.only_one(folder):
        boxes = Boxes(
            folder=folder,
            cdi_dir=Path(config.cdi_dir),
            node_dir=config.node_dir,
            library=library,
            preload=preload,
            expose="" if config.interface == "enforcer" else config.expose,
            mounts_by_cdi=config.interface != "device-plugin",
            alnair=_workspaces(config),
            shares=bool(config.hypervisor_listen),
        )
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        for interface, name in _CHECKPOINTS.items():
            if interface != config.interface:
                _is_free_of(folder / name)
        if config.interface == "device-plugin":
            _serve(config, gpus, boxes, stopped)
        else:
            dra.run(config, gpus, boxes, stopped)


def _gpus(config: Config) -> tuple[Gpu, ...]:
    """What there is to give out: nothing for an enforcer."""
    if config.interface == "enforcer":
        return ()
    return config.gpus if config.gpus is not None else of_machine()


def _workspaces(config: Config) -> alnair.Workspaces | None:
    if not config.alnair_dir:
        return None
    return alnair.Workspaces(Path(config.alnair_dir), Path(config.alnair_workspaces))


def _is_free_of(path: Path) -> None:
    """Refuse a folder in which another interface has given something out."""
    if checkpoint.read(path):
        raise ToolError(
            what=f"'{path.parent}' refused",
            why="containers there have GPUs by another interface",
            fix="Drain the node of pods with GPUs, then remove the folder",
        )


def _serve(config: Config, gpus: tuple[Gpu, ...], boxes: Boxes, stopped: threading.Event) -> None:
    kubelet = Kubelet(config)
    made = _desk(config, gpus, boxes, kubelet)
    made.open()
    for kind in made.kinds:
        made.units(kind)  # too many are refused before anybody hears of them
    steering.start(config, boxes, lambda: tuple(made.grants.held.values()), stopped)
    if boxes.alnair:
        alnair.start(
            boxes.alnair, lambda: [(key, boxes.home(key)) for key in made.grants.held], stopped
        )
    hypervisor.start(config, boxes, lambda: tuple(made.grants.held.values()), stopped)
    while not stopped.is_set():
        _meet(made, kubelet, stopped)


def _desk(config: Config, gpus: tuple[Gpu, ...], boxes: Boxes, kubelet: Kubelet) -> Desk:
    made = Desk(
        config, gpus, boxes, lambda: kubelet.containers(made.kinds.values()), kubelet.settled
    )
    return made


def _meet(here: Desk, kubelet: Kubelet, stopped: threading.Event) -> None:
    """Serve and register, until the kubelet is another one or the agent has to stop."""
    identity = _awaited(kubelet, stopped)
    if identity is None:
        return
    over = threading.Event()
    plugins = {kind: plugin.Plugin(here, kind, over) for kind in here.kinds}
    sockets = {kind: Path(here.config.plugin_dir) / f"gpufence-{kind}.sock" for kind in here.kinds}
    servers = []
    try:
        for kind, path in sockets.items():
            services = {messages.DEVICE_PLUGIN: plugins[kind].handlers()}
            servers.append(wire.serve(path, services))
        if not all(_registered(kubelet, here.kinds[kind], sockets[kind]) for kind in sockets):
            stopped.wait(_POLL_SECONDS)
            return
        kubelet.identity, kubelet.met_at = identity, kubelet.clock()
        print(f"gpufence: registered {', '.join(here.kinds.values())}", file=sys.stderr, flush=True)
        watched_at = kubelet.met_at
        while not stopped.wait(_POLL_SECONDS):
            # A kubelet that starts makes its socket anew, and removes everybody's.
            if kubelet.now() != identity or not all(map(os.path.exists, sockets.values())):
                break
            if all(each.is_watched for each in plugins.values()):
                watched_at = kubelet.clock()
            elif kubelet.clock() - watched_at > _WATCH_SECONDS:
                told = "gpufence: the kubelet no longer knows this agent, which registers again"
                print(told, file=sys.stderr, flush=True)
                break
    finally:
        kubelet.identity = None
        over.set()
        for server in servers:
            server.stop(grace=1).wait()
        for path in sockets.values():
            path.unlink(missing_ok=True)


def _awaited(kubelet: Kubelet, stopped: threading.Event) -> tuple[int, int] | None:
    """The kubelet's socket; None where the agent has to stop before there is one."""
    told = False
    while (identity := kubelet.now()) is None:
        if not told:
            print(f"gpufence: waiting for {kubelet.socket}", file=sys.stderr, flush=True)
            told = True
        if stopped.wait(_POLL_SECONDS):
            return None
    return identity


def _registered(kubelet: Kubelet, resource: str, socket: Path) -> bool:
    def request(known: Any) -> Any:  # noqa: ANN401 - messages are untyped
        return known["RegisterRequest"](
            version=plugin.VERSION,
            endpoint=socket.name,
            resource_name=resource,
            options=known["DevicePluginOptions"](**plugin.OPTIONS),
        )

    try:
        wire.call(kubelet.socket, messages.REGISTRATION, "Register", request)
    except wire.CallError as error:
        text = f"gpufence: {resource} is not registered: {one_line(str(error))}"
        if text != kubelet.told:  # it is tried again and again
            print(text, file=sys.stderr, flush=True)
        kubelet.told = text
        return False
    return True
