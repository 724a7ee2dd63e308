"""What a container gets from its agent: a folder of its own, mounts, variables, a CDI file.

A container's folder holds its limit, read-only to it, and its ledger. The CDI file tells its GPU,
which is chosen when the container starts. Owns these files; must not know who gets how much.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpufence.cdi import cdi_spec, yaml_text
from gpufence.console import output_file
from gpufence.errors import ToolError

from . import shared_file
from .alnair import Workspaces
from .book import Grant, Part

KIND = "gpufence.io/container"
# Runtimes read CDI devices of such annotations of a container; what follows is the caller's name.
ANNOTATION = "cdi.k8s.io/gpufence_container"
_LIMITS = "gpufence.conf"
_STATE = "state"
_SHARED = "shared"
_NVIDIA = "nvidia.com/gpu"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Boxes:
    """Where everything is. `expose` is how a container gets its GPU, as in the configuration.

    `expose` "": by somebody else. `mounts_by_cdi`: the CDI file has the mounts, too, because nobody
    else makes them. `alnair`: containers have Alnair's files and variables, too. `shares`: they
    have the file of vgpu.rs's hypervisor.
    """

    folder: Path
    cdi_dir: Path
    node_dir: str
    library: str
    preload: str
    expose: str
    mounts_by_cdi: bool = False
    alnair: Workspaces | None = None
    shares: bool = False

    def path(self, key: str) -> Path:
        """A container's folder on the host."""
        return self.folder / "containers" / key

    def device(self, key: str) -> str:
        """The container's CDI device."""
        return f"{KIND}={key}"

    def mounts(self, key: str) -> list[tuple[str, str, bool]]:
        """Path in the container, path on the host, whether it is read-only.

        The kubelet mounts them by itself: where no runtime reads CDI files, a container has its
        limit and no GPU, never a GPU without a limit.
        """
        box = self.path(key)
        return [
            (cdi_spec.LIBRARY_PATH, self.library, True),
            (cdi_spec.PRELOAD_PATH, self.preload, True),
            (cdi_spec.LIMITS_PATH, str(box / _LIMITS), True),
            (cdi_spec.STATE_PATH, str(box / _STATE), False),
            (cdi_spec.NODE_PATH, self.node_dir, False),
            *(self.alnair.mounts(key) if self.alnair else []),
            *([(shared_file.FOLDER, str(box / _SHARED), True)] if self.shares else []),
        ]

    def home(self, key: str) -> Path:
        """The folder that no other container sees."""
        return self.path(key) / _STATE

    def fill(self, grant: Grant) -> None:
        """Write a container's files; again, where an agent was killed while it did.

        Raises:
            ToolError: exit 1, when the GPU's own CDI device cannot be found.
            OSError: something cannot be written.
        """
        box = self.path(grant.key)
        state = box / _STATE
        state.mkdir(parents=True, exist_ok=True)
        os.chmod(state, 0o1777)  # a container's users differ
        variables = limits(grant)
        if self.mounts_by_cdi:
            # By its claim: the limit is that of all containers which have it, together.
            variables["GPUFENCE_CONTAINER"] = grant.key
        source = cdi_spec.Source(
            self.library, self.preload, str(state), self.node_dir, None, str(box)
        )
        if (box / _LIMITS).is_dir():
            # A runtime makes folders where a mount lacks its source: a new kubelet had it start a
            # container without a word to us. Its library has refused the GPU since.
            _remove(box / _LIMITS)
        output_file.write(box / _LIMITS, cdi_spec.limits_text(variables, source, "gpufence node"))
        variables.update(self._gpu_variables(grant))
        if self.shares:
            shared_file.write(box / _SHARED, grant)
        if self.alnair:
            self.alnair.fill(grant)
            variables.update(self.alnair.variables(grant))
        env = [f"{name}={text}" for name, text in variables.items()]
        edits: dict[str, Any] = {"env": [*env, f"GPUFENCE_NODE_DIR={cdi_spec.NODE_PATH}"]}
        if self.mounts_by_cdi:
            edits["mounts"] = [
                cdi_spec.bind(outside, inside, *(["ro"] if read_only else ["rw", "noexec"]))
                for inside, outside, read_only in self.mounts(grant.key)
            ]
        if self.expose == "cdi":
            edits = _merged(edits, *_nvidia_edits(self.cdi_dir, grant.gpus))
        device = {"name": grant.key, "containerEdits": edits}
        document: dict[str, Any] = {
            "cdiVersion": cdi_spec.VERSIONS[0],
            "kind": KIND,
            "devices": [device],
        }
        document["cdiVersion"] = cdi_spec.needed_version(document)
        self.cdi_dir.mkdir(parents=True, exist_ok=True)
        output_file.write(self._cdi_file(grant.key), json.dumps(document, indent=2) + "\n")

    def empty(self, key: str) -> None:
        """Remove all that a container had, so that the next one finds nothing of it.

        Raises:
            OSError: something stays.
        """
        self._cdi_file(key).unlink(missing_ok=True)
        for folder in [*([self.alnair.path(key)] if self.alnair else []), self.path(key)]:
            if folder.exists():
                _remove(folder)

    def keys(self) -> set[str]:
        """Of every container that has a folder or a CDI file."""
        boxes = self.folder / "containers"
        found = {path.name for path in boxes.iterdir()} if boxes.is_dir() else set()
        prefix, suffix = "gpufence-container-", ".json"
        for path in self.cdi_dir.glob(f"{prefix}*{suffix}"):
            found.add(path.name.removeprefix(prefix).removesuffix(suffix))
        return found

    def _cdi_file(self, key: str) -> Path:
        return self.cdi_dir / f"gpufence-container-{key}.json"

    def _gpu_variables(self, grant: Grant) -> dict[str, str]:
        if self.expose != "environment":
            return {}
        return {"NVIDIA_VISIBLE_DEVICES": ",".join(grant.gpus)}


def _remove(folder: Path) -> None:
    """Remove a folder into which a container could write.

    Raises:
        OSError: something stays.
    """
    try:
        shutil.rmtree(folder)
    except RecursionError:
        # Folders in folders, deeper than Python's stack: rm walks them in a loop, by descriptors.
        done = subprocess.run(
            ["rm", "-rf", "--", str(folder)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            why = done.stderr.strip().rpartition(": ")[2]
            raise OSError(errno.EIO, why, str(folder)) from None


def limits(grant: Grant) -> dict[str, str]:
    """The variables of a container's limits."""
    if grant.parts:
        return _limits_of_parts(grant.parts)
    variables = {"GPUFENCE_MEMORY_LIMIT": str(grant.memory_bytes)}
    if grant.cores:
        variables["GPUFENCE_CORE_LIMIT"] = str(grant.cores)
    return variables


def _limits_of_parts(parts: Iterable[Part]) -> dict[str, str]:
    """By each GPU's UUID; a GPU that comes in another way has nothing, not everything."""
    variables = {"GPUFENCE_MEMORY_LIMIT": "1"}
    for part in parts:
        # Shells drop variables with a '-' in their names.
        uuid = part.gpu.replace("-", "_")
        variables[f"GPUFENCE_MEMORY_LIMIT_{uuid}"] = str(part.memory_bytes)
        if part.cores:
            variables[f"GPUFENCE_CORE_LIMIT_{uuid}"] = str(part.cores)
    return variables


def _merged(*all_edits: Mapping[str, Any]) -> dict[str, Any]:
    """Edits of several CDI devices as those of one."""
    merged: dict[str, Any] = {}
    for edits in all_edits:
        for key, value in edits.items():
            if isinstance(value, list):
                known = merged.setdefault(key, [])
                known += [each for each in value if each not in known]
            else:
                merged[key] = value
    return merged


def _nvidia_edits(folder: Path, uuids: tuple[str, ...]) -> list[Mapping[str, Any]]:
    """What NVIDIA's CDI files do for these GPUs."""
    found: list[Mapping[str, Any]] = []
    documents = [
        document
        for place in (Path("/etc/cdi"), folder)
        for path in sorted(place.glob("*"))
        if (document := _document(path)) and document.get("kind") == _NVIDIA
    ]
    for uuid in uuids:
        for document in reversed(documents):  # a later folder wins
            named = [each for each in document["devices"] if each["name"] == uuid]
            if named:
                found += [document.get("containerEdits") or {}, named[0]["containerEdits"]]
                break
        else:
            raise ToolError(
                what=f"no CDI device '{_NVIDIA}={uuid}'",
                why=f"neither /etc/cdi nor {folder} has a file with it",
                fix="Make it: `nvidia-ctk cdi generate --device-name-strategy=uuid`",
            )
    return found


def _document(path: Path) -> dict[str, Any] | None:
    if path.suffix not in (".json", ".yaml", ".yml"):
        return None
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode()
        document = json.loads(text) if path.suffix == ".json" else yaml_text.load(text)
    except (OSError, ValueError, yaml_text.YamlError, RecursionError):
        return None
    return document if isinstance(document, dict) and not cdi_spec.check(document) else None
