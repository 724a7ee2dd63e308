"""A container image from a folder, as containerd imports it.

Must not know what the image is for.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def write(
    archive: Path, name: str, tree: Path, command: Sequence[str], environment: Mapping[str, str]
) -> None:
    """One layer with the folder's files, in the form of `docker save`."""
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as packed:
        packed.add(tree, arcname=".")
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    config = {
        "architecture": _MACHINES[platform.machine()],
        "os": "linux",
        "config": {
            "Cmd": list(command),
            "Env": [f"{key}={value}" for key, value in environment.items()],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as packed:
        for path, document in (("config.json", config), ("manifest.json", manifest)):
            content = json.dumps(document).encode()
            head = tarfile.TarInfo(path)
            head.size = len(content)
            packed.addfile(head, io.BytesIO(content))
        packed.add(layer, arcname="layer.tar")
    layer.unlink()
