"""What engines call a container, from what they leave beside it, and who is meant by a name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpufence.container import called
from gpufence.machine import engines
from gpufence.machine.engines import Called
from gpufence.machine.people import Pod

ID = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
UID = "01234567-89ab-4cde-8f01-23456789abcd"
PROGRAM, FIRST, HELPER = 700, 650, 600


class Machine:
    """A made-up /proc and what lies on the disk."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.system = folder / "system"
        self.system.mkdir(parents=True)
        self.mounts = folder / "mounts"
        self.mounts.mkdir()
        self.process("self", 1, "python", mounts="ours")

    def process(
        self,
        pid: int | str,
        parent: int,
        comm: str,
        mounts: str = "ours",
        **files: str,
    ) -> Path:
        own = self.proc / str(pid)
        (own / "ns").mkdir(parents=True)
        namespace = self.mounts / mounts
        namespace.touch()
        (own / "ns" / "mnt").symlink_to(namespace)
        (own / "comm").write_text(f"{comm}\n")
        (own / "stat").write_text(f"{pid} ({comm}) S {parent} 1 1\n")
        for name, text in files.items():
            (own / name).write_text(text)
        return own

    def container(self, helper: str, **files: str) -> Path:
        """A program two steps below the engine's helper; the helper's folder in /proc."""
        own = self.process(HELPER, 1, helper)
        self.process(FIRST, HELPER, "sh", mounts="theirs")
        self.process(PROGRAM, FIRST, "train", mounts="theirs", **files)
        return own

    def called(self) -> Called:
        return engines.look_up(self.proc, PROGRAM, self.system)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def shim(machine: Machine, bundle: Path, **files: str) -> None:
    """The helper of containerd, whose working folder is the bundle that it was started for."""
    bundle.mkdir(parents=True)
    (machine.container("containerd-shim", **files) / "cwd").symlink_to(bundle)


def test_podmans_name_is_what_conmon_was_started_with(machine: Machine) -> None:
    own = machine.container("conmon")
    (own / "cmdline").write_text(f"/usr/bin/conmon\0-c\0{ID}\0-n\0web\0-b\0/x\0")

    assert machine.called() == Called("web")


def test_cri_os_name_tells_the_pod(machine: Machine) -> None:
    own = machine.container("conmon")
    (own / "cmdline").write_text(f"conmon\0-n\0k8s_main_train-0_ml_{OTHER[:8]}_2\0")

    assert machine.called() == Called("main", "train-0", "ml")


@pytest.mark.parametrize(
    ("cgroup", "uid"),
    [
        (f"kubepods/besteffort/pod{UID}/{ID}", UID),
        (f"../../kubepods-burstable-pod{UID.replace('-', '_')}.slice/crio-{ID}.scope", UID),
        (f"kubepods/burstable/pod{ID[:32]}/{ID}", ID[:32]),
        (f"user.slice/pod{UID[:-4]}/{ID}", ""),
        (f"user.slice/mypod{UID}/{ID}", ""),
    ],
)
def test_a_pods_uid_is_that_of_its_cgroup(machine: Machine, cgroup: str, uid: str) -> None:
    own = machine.container("conmon", cgroup=f"0::/{cgroup}\n")
    (own / "cmdline").write_text("conmon\0-n\0k8s_main_train-0_ml_1_2\0")

    assert machine.called() == Called("main", "train-0", "ml", uid)


def test_a_pods_container_is_found_beside_the_shims_own(machine: Machine, tmp_path: Path) -> None:
    bundles = tmp_path / "k8s.io"
    shim(machine, bundles / OTHER, cgroup=f"0::/kubepods/burstable/poduid/{ID}\n")
    (bundles / ID).mkdir()
    notes = {"container-name": "main", "sandbox-name": "train-0", "sandbox-namespace": "ml"}
    prefixed = {f"io.kubernetes.cri.{name}": text for name, text in notes.items()}
    (bundles / ID / "config.json").write_text(json.dumps({"annotations": prefixed}))

    assert machine.called() == Called("main", "train-0", "ml")


def test_a_pods_container_is_found_where_only_the_shim_sees_it(machine: Machine) -> None:
    """The machine has no such folder: it lies in the mounts of the shim."""
    own = machine.container("containerd-shim", cgroup=f"0::/kubepods/{ID}\n")
    (own / "cwd").symlink_to(f"/run/nowhere/k8s.io/{OTHER}")
    there = own / "root" / "run" / "nowhere" / "k8s.io" / ID
    there.mkdir(parents=True)
    notes = {"container-name": "main", "sandbox-name": "train-0", "sandbox-namespace": "ml"}
    prefixed = {f"io.kubernetes.cri.{name}": text for name, text in notes.items()}
    (there / "config.json").write_text(json.dumps({"annotations": prefixed}))

    assert machine.called() == Called("main", "train-0", "ml")


def test_a_container_of_ctr_is_called_by_its_folder(machine: Machine, tmp_path: Path) -> None:
    shim(machine, tmp_path / "default" / "demo")

    assert machine.called() == Called("demo")


@pytest.mark.parametrize("way", ["cgroup", "mountinfo"])
def test_dockers_name_stands_in_its_file(machine: Machine, tmp_path: Path, way: str) -> None:
    folder = "/srv/docker" if way == "mountinfo" else "/var/lib/docker"
    line = f"7 1 8:1 {folder}/containers/{ID}/hostname /etc/hostname rw - ext4 /dev/vda rw\n"
    texts = {"cgroup": f"12:memory:/docker/{ID}\n", "mountinfo": line}
    shim(machine, tmp_path / "moby" / ID, **{way: texts[way]})
    kept = machine.system / folder.lstrip("/") / "containers" / ID
    kept.mkdir(parents=True)
    (kept / "config.v2.json").write_text(json.dumps({"Name": "/web"}))

    assert machine.called() == Called("web")


@pytest.mark.parametrize(
    ("helper", "words"),
    [
        ("lxc-start", ["[lxc monitor] /var/lib/lxc web"]),
        ("lxd", ["[lxc monitor] /var/lib/lxd/containers web"]),
        ("lxc-start", ["/usr/bin/lxc-start", "-F", "-n", "web"]),
        ("lxc-execute", ["lxc-execute", "--name=web", "--", "train"]),
        ("systemd-nspawn", ["systemd-nspawn", "--quiet", "--machine=web", "-D", "/srv/other"]),
        ("systemd-nspawn", ["systemd-nspawn", "-M", "web", "--boot"]),
        ("systemd-nspawn", ["systemd-nspawn", "-D/var/lib/machines/web/", "-U"]),
    ],
)
def test_lxcs_and_nspawns_name_is_what_their_command_was_started_with(
    machine: Machine, helper: str, words: list[str]
) -> None:
    own = machine.container(helper)
    (own / "cmdline").write_text("".join(f"{word}\0" for word in words))

    assert machine.called() == Called("web")


def test_a_process_of_the_machine_itself_has_no_engine(machine: Machine) -> None:
    own = machine.process(HELPER, 1, "conmon")
    (own / "cmdline").write_text("conmon\0-n\0web\0")
    machine.process(PROGRAM, HELPER, "train")

    assert machine.called() == Called()


@pytest.mark.parametrize(
    "cmdline",
    ["", "conmon\0-n", "conmon\0-x\0web\0", "conmon\0-n\0a\x1b[2Jb\0", "-n\0" + "x" * 600],
)
def test_nonsense_is_no_name(machine: Machine, cmdline: str) -> None:
    own = machine.container("conmon")
    (own / "cmdline").write_text(cmdline)

    assert machine.called() == Called()


def test_broken_files_are_no_names(machine: Machine, tmp_path: Path) -> None:
    bundle = tmp_path / "k8s.io" / ID
    shim(machine, bundle, cgroup=f"0::/{ID}\n")
    (bundle / "config.json").write_text("[" * 5000)

    assert machine.called() == Called()


def test_who_runs_in_circles_is_not_followed_for_ever(machine: Machine) -> None:
    machine.process(PROGRAM, FIRST, "train", mounts="theirs")
    machine.process(FIRST, PROGRAM, "sh", mounts="theirs")

    assert machine.called() == Called()


OF_A_POD = Pod("train-0", "ml", "main")


@pytest.mark.parametrize(
    ("pod", "wanted", "meant"),
    [
        (OF_A_POD, "ml/train-0/main", True),
        (OF_A_POD, "train-0/main", True),
        (OF_A_POD, "ml/train-0", True),
        (OF_A_POD, "train-0", True),
        (OF_A_POD, "main", True),
        (OF_A_POD, "ml", False),
        (OF_A_POD, "", False),
        (Pod(container="web"), "web", True),
        (Pod(container="web"), "we", False),
        (Pod(), "", False),
    ],
)
def test_a_container_is_meant_by_any_of_its_names(pod: Pod, wanted: str, meant: bool) -> None:
    assert called.means(pod, wanted) is meant


def test_the_label_has_all_names_that_there_are() -> None:
    assert called.label(OF_A_POD) == "ml/train-0/main"
    assert called.label(Pod(container="web")) == "web"
    assert called.label(Pod()) == ""
