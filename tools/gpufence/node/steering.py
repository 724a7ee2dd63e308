"""Live limits of the agent's containers: what their pods say is set, as `gpufence set` sets it.

No pod gets more by it than the agent gave out. Owns what was set last, beside each container's
files; must not know the API server.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpufence.console import output_file
from gpufence.container import containers, setting
from gpufence.container.containers import Container
from gpufence.container.setting import Entries
from gpufence.errors import ToolError, one_line
from gpufence.state.limits_bytes import EVERY_GPU, Amounts

from . import api, pod_limits, pods
from .book import Grant
from .boxes import Boxes
from .config import Config
from .pods import Pod

_LOOK_SECONDS = 0.25
_MOST_BYTES = 1 << 20

# What was said, by name and as it was written.
Said = dict[str, str]
# In a record: what stands beside it may be set, or not yet.
_UNDER_WAY = "under-way"


@dataclass(slots=True)
class Steering:
    """Has what pods say in force; `held` are the grants of this moment."""

    config: Config
    boxes: Boxes
    held: Callable[[], Collection[Grant]]
    _pods: Mapping[str, Pod] | None = None
    _told: dict[str, str] = field(default_factory=dict)

    def tell(self, known: Mapping[str, Pod]) -> None:
        """What pods there are now, by namespace/name."""
        self._pods = known

    def look(self) -> None:
        """Set what is not yet in force. Nothing, while no server has told of pods."""
        if self._pods is None:
            return
        for grant in self.held():
            said = self._said(grant, self._pods)
            if said is not None and (said or self._record(grant.key).exists()):
                self._steer(grant, said)

    def _said(self, grant: Grant, known: Mapping[str, Pod]) -> Said | None:
        """What is said for a grant's container; None where its pod is not known."""
        owner, _, container = grant.owner.rpartition("/")
        pod = known.get(owner)
        if pod is None:  # by claim, whose name says nothing of containers
            pod = next((each for each in known.values() if grant.owner in each.claims), None)
            container = ""
        if pod is None:
            return None
        usual = self.config.of_qos(pod.qos)
        return pod_limits.texts(pod.annotations, container, self.config.annotations, usual)

    def _steer(self, grant: Grant, said: Said) -> None:
        """A failure is told once, and tried again at the next look."""
        try:
            wanted = pod_limits.amounts(said)
            wanted = pod_limits.within(wanted, grant.memory_bytes, grant.cores)
            for each in containers.find(str(self.boxes.path(grant.key) / "state")):
                done = self._done(grant.key)
                if done.get(each.name, {}) != said:
                    self._set(grant, each, done, said, wanted)
            self._told.pop(grant.owner, None)
        except (ToolError, OSError) as error:
            if not self.boxes.path(grant.key).exists():
                return  # it is over
            text = f"{grant.owner}: {one_line(str(error))}"
            if self._told.get(grant.owner) != text:
                _tell(text)
            self._told[grant.owner] = text

    def _set(
        self,
        grant: Grant,
        container: Container,
        done: Mapping[str, Said],
        said: Said,
        wanted: Amounts,
    ) -> None:
        """Have it set for one container.

        First the record says that it is under way, so that an agent which is killed in between
        does it again, and takes back what it may have done.
        """
        before = done.get(container.name, {})
        names = {*before, *said} - {_UNDER_WAY}
        self._keep(grant.key, {**done, container.name: {**before, **said, _UNDER_WAY: "yes"}})

        def edit(entries: Entries) -> Entries:
            general = entries.get(EVERY_GPU, Amounts())
            return {**entries, EVERY_GPU: pod_limits.edited(general, names, wanted)}

        setting.apply(container, edit)
        self._keep(grant.key, {**done, container.name: said})
        words = ", ".join(f"{name} {text}" for name, text in sorted(said.items()))
        _tell(f"{grant.owner}: {words or 'what its pod had set is taken back'}")

    def _keep(self, key: str, done: Mapping[str, Said]) -> None:
        output_file.write(self._record(key), json.dumps(done) + "\n")

    def _record(self, key: str) -> Path:
        """Beside the folder that the container sees: only root writes there."""
        return self.boxes.path(key) / "said.json"

    def _done(self, key: str) -> dict[str, Said]:
        """What was set last, by the container's name; nothing where that cannot be read."""
        try:
            with self._record(key).open("rb") as file:
                found = json.loads(file.read(_MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        whole = isinstance(found, dict) and all(isinstance(each, dict) for each in found.values())
        return found if whole else {}


def start(
    config: Config, boxes: Boxes, held: Callable[[], Collection[Grant]], stopped: threading.Event
) -> None:
    """Follow the node's pods until `stopped` is set; nothing where the configuration has no use.

    Raises:
        ToolError: exit 2, there is no API server.
    """
    if not config.steers:
        return
    steering = Steering(config, boxes, held)
    server = api.connect(config.api_server)
    words = (server, config.node, stopped, steering.tell)
    threading.Thread(target=pods.follow, args=words, daemon=True).start()
    threading.Thread(target=_keep_looking, args=(steering, stopped), daemon=True).start()


def _keep_looking(steering: Steering, stopped: threading.Event) -> None:
    while not stopped.wait(_LOOK_SECONDS):
        steering.look()


def _tell(text: str) -> None:
    print(f"gpufence: {one_line(text)}", file=sys.stderr, flush=True)
