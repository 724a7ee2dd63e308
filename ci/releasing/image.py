"""The node image: an OCI image layout, one tar file, made without a daemon.

It holds the library, the preload files and one static program that copies them to the node; nothing
of a distribution. Owns the layout's JSON. Must not know how a library is compiled.

Format: OCI image specification 1.0, image-layout.md, manifest.md and config.md.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import archives
from .archives import Entry

_KIND = "application/vnd.oci.image."
ENTRYPOINT = ("/bin/install", "/gpufence")
# Reads limits for the tools, which are not in the image.
_OF_TOOLS = "libgpufence-limits.so"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def root(libraries: Path, program: bytes, license_text: bytes, epoch: int) -> bytes:
    """The file system of one machine's image, as a tar: its only layer, and ADD's in Dockerfile."""
    tree = {
        f"gpufence/{name}": Entry(entry.content)
        for name, entry in archives.read_tree(libraries / "lib").items()
        if name != _OF_TOOLS
    }
    tree["bin/install"] = Entry(program, program=True)
    tree["LICENSE"] = Entry(license_text)
    return archives.tar(tree, epoch)


def layout(roots: Mapping[str, bytes], name: str, version: str, commit: str, epoch: int) -> bytes:
    """The image of all machines, as `podman load` and `skopeo copy oci-archive:` read it.

    Args:
        roots: an uncompressed layer for each machine.
        name: of the image.
        version: its tag.
        commit: what it was built from.
        epoch: the time of every file, and of the image.
    """
    notes = {
        "org.opencontainers.image.title": name,
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.revision": commit,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
    blobs: dict[str, Entry] = {}
    manifests = []
    for machine, layer in sorted(roots.items()):
        architecture = {"architecture": ARCHITECTURES[machine], "os": "linux"}
        packed = archives.compressed(layer)
        config = {
            "created": created,
            **architecture,
            "config": {"Entrypoint": list(ENTRYPOINT), "Labels": notes},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            "history": [{"created": created, "created_by": "ci/release"}],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_KIND}manifest.v1+json",
            "config": _put(blobs, _json(config), "config.v1+json"),
            "layers": [_put(blobs, packed, "layer.v1.tar+gzip")],
            "annotations": notes,
        }
        told = _put(blobs, _json(manifest), "manifest.v1+json")
        manifests.append({**told, "platform": architecture})
    # One image under the tag, whatever the machine: an index of its own behind the layout's.
    index: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": f"{_KIND}index.v1+json",
        "manifests": manifests,
        "annotations": notes,
    }
    tagged = _put(blobs, _json(index), "index.v1+json")
    tagged["annotations"] = {"org.opencontainers.image.ref.name": f"{name}:{version}"}
    blobs["oci-layout"] = Entry(_json({"imageLayoutVersion": "1.0.0"}))
    blobs["index.json"] = Entry(_json({"schemaVersion": 2, "manifests": [tagged]}))
    return archives.tar(blobs, epoch)


# Implementation.


def _put(blobs: dict[str, Entry], content: bytes, kind: str) -> dict[str, Any]:
    digest = _digest(content)
    blobs[f"blobs/{digest.replace(':', '/')}"] = Entry(content)
    return {"mediaType": f"{_KIND}{kind}", "digest": digest, "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
