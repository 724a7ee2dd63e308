"""Who a process is: found by the number it has in its own pid namespace, and named."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from gpufence.machine.people import People, Person, Pod, printable
from gpufence.state.shared_file import Life, Owner

from .region_files import own_namespace, start_ticks

THERE = 4026530000  # another pid namespace


class Proc:
    """A made-up /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0.0

    def add(self, pid: int, pid_there: int, command: str, environ: str = "") -> None:
        own = self.folder / str(pid)
        (own / "ns").mkdir(parents=True)
        # The namespace is told by an inode: every process has a file of its own here.
        (own / "ns" / "pid").touch()
        (own / "status").write_text(f"Name:\t{command}\nNSpid:\t{pid}\t{pid_there}\nNSpgid:\t1\n")
        (own / "comm").write_text(f"{command}\n")
        (own / "environ").write_bytes(environ.encode())

    def namespace(self, pid: int) -> int:
        return (self.folder / str(pid) / "ns" / "pid").stat().st_ino

    def people(self) -> People:
        return People(proc=self.folder, clock=lambda: self.now)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    (tmp_path / "self").mkdir()
    (tmp_path / "99").mkdir()  # one that may not be read
    return Proc(tmp_path)


def owner(pid: int, namespace: int, foreign: bool = True) -> Owner:
    return Owner(0, pid, 0, 1, namespace, foreign, Life.ALIVE)


def test_a_process_of_another_namespace_is_found_by_its_number_there(proc: Proc) -> None:
    proc.add(4001, 7, "train")
    proc.add(4002, 7, "other")
    people = proc.people()

    assert people.look_up(owner(7, proc.namespace(4001))) == Person(4001, "train", Pod())
    assert people.look_up(owner(7, proc.namespace(4002))) == Person(4002, "other", Pod())


def test_one_that_cannot_be_seen_is_nobody_and_is_looked_for_again_later(proc: Proc) -> None:
    people = proc.people()
    assert people.look_up(owner(7, THERE)).pid is None

    proc.add(4001, 7, "train")
    unseen = owner(7, proc.namespace(4001))

    assert people.look_up(unseen).pid is None  # a list of processes is good for a while
    proc.now = 6.0
    assert people.look_up(unseen).pid == 4001


def test_the_dead_are_nobody_whoever_has_their_number(proc: Proc) -> None:
    proc.add(4001, 7, "train")

    dead = replace(owner(7, proc.namespace(4001)), life=Life.GONE)

    assert proc.people().look_up(dead) == Person(None, None, Pod())


@pytest.mark.parametrize(
    ("environ", "pod"),
    [
        ("A=1\0VGPU_POD_NAME=p\0VGPU_POD_NAMESPACE=n\0VGPU_CONTAINER_NAME=c\0", Pod("p", "n", "c")),
        ("POD_NAME=p\0POD_NAMESPACE=n\0", Pod("p", "n", "")),
        ("VGPU_POD_NAME=mine\0POD_NAME=other\0", Pod("mine", "", "")),
        ("VGPU_POD_NAME=\0POD_NAME=other\0", Pod("other", "", "")),
        ("VGPU_POD_NAME=a\nb\x1b[31m\0", Pod("a?b?[31m", "", "")),
        ("nonsense", Pod()),
        ("", Pod()),
    ],
)
def test_a_pods_names_come_from_the_environment(proc: Proc, environ: str, pod: Pod) -> None:
    proc.add(4001, 7, "train", environ)

    assert proc.people().look_up(owner(7, proc.namespace(4001))).pod == pod


def test_a_process_of_ours_is_itself() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        mine = Owner(
            0, process.pid, 0, start_ticks(process.pid), own_namespace(), False, Life.ALIVE
        )
        found = People().look_up(mine)
        process.kill()

    assert (found.pid, found.command) == (process.pid, "sleep")


def test_users_have_their_names() -> None:
    assert People().user(0) == "root"
    assert People().user(4_000_000_000) == "4000000000"


def test_what_others_chose_does_no_harm_to_a_terminal() -> None:
    assert printable("a\x1b]0;b\x07\ud800\n") == "a?]0;b???"
    assert printable(os.fsdecode("é".encode())) == "é"
