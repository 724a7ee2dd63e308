"""The root file system of a container in which a real systemd boots: a system and our probe.

The system is that of the session, under an overlay. Two units report: `probe.service` is the probe
as a service of a user, which ends the container; `ready.service` says that the boot is over. Must
not know which engine boots it.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from . import tree
from .engine import SIM, Done, Host
from .session import Session

INIT = "/lib/systemd/systemd"
_PROBE = """\
[Unit]
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
User={uid}
Environment={sim}
StandardOutput=file:/sim/stdout
StandardError=file:/sim/stderr
ExecStart={probe}
"""
_READY = """\
[Service]
Type=oneshot
ExecStart=/bin/sh -c '>/sim/ready'
"""


def make(session: Session, host: Host) -> Path:
    """A root file system as the session's own, with the simulated driver and the probe."""
    root = host.folder / "booted"
    upper = host.folder / "upper"
    for folder in (root, upper):
        folder.mkdir()
    # Not on the disk: an overlay's layers must not contain one another.
    layers = f"lowerdir=/,upperdir={upper}/up,workdir={upper}/work,metacopy=on"
    done = session.run(
        "sh", "-euc",
        f"mount -t tmpfs tmpfs {upper}; mkdir {upper}/up {upper}/work\n"
        f"mount -t overlay -o {layers} overlay {root}\n"
        f"mkdir -p {root}/opt/sim {root}/sim; cp {host.tree}/opt/sim/* {root}/opt/sim/\n"
        f"cp {host.tree}{tree.PROBE} {root}/usr/bin/\n"
        f"echo /opt/sim >{root}/etc/ld.so.conf.d/sim.conf; ldconfig -r {root}\n"
        f"echo user:x:1000:1000::/:/bin/sh >>{root}/etc/passwd\n"
        f"echo user:x:1000: >>{root}/etc/group; : >{root}/etc/machine-id\n"
    )  # fmt: skip
    if done.returncode != 0:
        raise OSError(f"no system to boot: {done.stderr.strip()[-300:]}")
    return root


def choose(session: Session, host: Host, uid: int | None) -> None:
    """What the next boot starts: the probe as a service of a user; None for nothing but `ready`."""
    units = host.folder / "units"
    shutil.rmtree(units, ignore_errors=True)
    units.mkdir()
    probe = _PROBE.format(uid=uid, sim=SIM, probe=tree.PROBE)
    (units / "probe.service").write_text(probe, encoding="ascii")
    (units / "ready.service").write_text(_READY, encoding="ascii")
    for name in ("stdout", "stderr", "ready"):
        (host.folder / "sim" / name).unlink(missing_ok=True)
    system = f"{host.folder}/booted/etc/systemd/system"
    wanted = "ready" if uid is None else "probe"
    session.run(
        "sh", "-euc",
        f"cp {units}/*.service {system}/; rm -rf {system}/multi-user.target.wants\n"
        f"mkdir {system}/multi-user.target.wants\n"
        f"ln -s ../{wanted}.service {system}/multi-user.target.wants/\n"
        f"ln -sf /lib/systemd/system/multi-user.target {system}/default.target\n",
    )  # fmt: skip


def outcome(host: Host, boot: Done) -> Done:
    """What the service said; what the engine said where there was no service."""
    said = [host.folder / "sim" / name for name in ("stdout", "stderr")]
    if not said[0].exists():
        return boot
    stdout, stderr = (path.read_text(encoding="utf-8") for path in said)
    return Done(boot.args, boot.returncode, stdout, stderr)


def wait(host: Host, patience_s: float = 90) -> bool:
    """Until the boot is over."""
    ends = time.monotonic() + patience_s
    while not (host.folder / "sim" / "ready").exists():
        if time.monotonic() > ends:
            return False
        time.sleep(0.1)
    return True
