"""The DRA plugin of the kubelet (v1): registration, claims prepared and taken back.

Owns sockets' places and messages; must not know what is given out. Imported only when it runs.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from gpufence.errors import ToolError, one_line

from . import api, enforcer, messages, slices, steering, wire
from .boxes import Boxes
from .claims import Claims, Rules
from .config import Config
from .enforcer import Enforcer
from .gpus import Gpu
from .own_gpus import OwnGpus
from .wire import Handler

_POLL_SECONDS = 0.5
_PUBLISH_SECONDS = 30.0
_VERSIONS = ["v1.DRAPlugin"]


class Plugin:
    """Answers the kubelet for one driver."""

    def __init__(self, claims: Claims, endpoint: Path) -> None:
        self._claims = claims
        self._driver = claims.rules.driver
        self._endpoint = endpoint
        self._known = messages.load(messages.package_of(messages.DRA_PLUGIN))
        self._registration = messages.load(messages.package_of(messages.PLUGIN_REGISTRATION))

    def handlers(self) -> dict[str, Handler]:
        """Of the plugin's own socket, by method."""
        return {"NodePrepareResources": self._prepare, "NodeUnprepareResources": self._unprepare}

    def registration(self) -> dict[str, Handler]:
        """Of the socket by which the kubelet finds it."""
        return {"GetInfo": self._info, "NotifyRegistrationStatus": self._status}

    def _info(self, request: Any, context: Any) -> Any:  # noqa: ANN401 - messages are untyped
        return self._registration["PluginInfo"](
            type="DRAPlugin",
            name=self._driver,
            endpoint=str(self._endpoint),
            supported_versions=_VERSIONS,
        )

    def _status(self, request: Any, context: Any) -> Any:  # noqa: ANN401
        done = request.plugin_registered
        told = "registered" if done else f"not registered: {one_line(request.error)}"
        print(f"gpufence: {self._driver} is {told}", file=sys.stderr, flush=True)
        return self._registration["RegistrationStatusResponse"]()

    def _prepare(self, request: Any, context: Any) -> Any:  # noqa: ANN401
        answer = self._known["NodePrepareResourcesResponse"]()
        for claim in request.claims:
            told = answer.claims[claim.uid]
            # One claim's failure is not another's.
            try:
                prepared = self._claims.prepare(claim.namespace, claim.name, claim.uid)
            except (ToolError, OSError) as error:
                told.error = _said(error)
                continue
            for each in prepared:
                told.devices.add(
                    request_names=each.requests,
                    pool_name=each.pool,
                    device_name=each.device,
                    cdi_device_ids=each.cdi_devices,
                )
        return answer

    def _unprepare(self, request: Any, context: Any) -> Any:  # noqa: ANN401
        answer = self._known["NodeUnprepareResourcesResponse"]()
        for claim in request.claims:
            told = answer.claims[claim.uid]
            try:
                self._claims.unprepare(claim.uid)
            except (ToolError, OSError) as error:
                told.error = _said(error)
        return answer


def run(config: Config, gpus: tuple[Gpu, ...], boxes: Boxes, stopped: threading.Event) -> None:
    """Serve until `stopped` is set. An enforcer has no `gpus`: another driver gives them out.

    Raises:
        ToolError: 1 or 2, as `gpufence node` documents.
    """
    server = api.connect(config.api_server)
    rules: Rules = OwnGpus(gpus, boxes)
    made = slices.slice_of(config.node, gpus)
    if config.interface == "enforcer":
        rules = Enforcer(config, boxes, server.slices)
        made = enforcer.slice_of(config.node)
    claims = Claims(rules, boxes, server.claim)
    claims.open()
    steering.start(config, boxes, lambda: tuple(claims.grants.held.values()), stopped)
    publishing = threading.Thread(target=_publish, args=(server, made, stopped), daemon=True)
    publishing.start()
    while not stopped.is_set():
        _serve(config, claims, stopped)


def _publish(server: api.Api, made: dict[str, Any], stopped: threading.Event) -> None:
    """Have the slice published, and again where somebody removes it: the kubelet does so at times.

    A failure is told once, until another one comes.
    """
    told = ""
    while not stopped.is_set():
        try:
            server.publish(made)
            told = ""
        except ToolError as error:
            if str(error) != told:
                print(f"gpufence: {error}", file=sys.stderr, flush=True)
            told = str(error)
        stopped.wait(_PUBLISH_SECONDS if not told else 1)


def _serve(config: Config, claims: Claims, stopped: threading.Event) -> None:
    """Until the agent has to stop, or somebody removes a socket."""
    driver = claims.rules.driver
    endpoint = Path(config.plugins_dir) / driver / "dra.sock"
    found_by = Path(config.registry_dir) / f"{driver}-reg.sock"
    endpoint.parent.mkdir(parents=True, exist_ok=True)
    plugin = Plugin(claims, endpoint)
    servers = [wire.serve(endpoint, {messages.DRA_PLUGIN: plugin.handlers()})]
    try:
        # The kubelet looks for it, so the other socket listens already.
        services = {messages.PLUGIN_REGISTRATION: plugin.registration()}
        servers.append(wire.serve(found_by, services))
        while not stopped.wait(_POLL_SECONDS) and endpoint.exists() and found_by.exists():
            pass
    finally:
        for path in (found_by, endpoint):
            path.unlink(missing_ok=True)
        for each in servers:
            each.stop(grace=1).wait()


def _said(error: Exception) -> str:
    text = one_line(str(error))
    print(f"gpufence: {text}", file=sys.stderr, flush=True)
    return text
