"""`gpufence export`: metrics that Prometheus can read, printed, kept in a file or served."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gpufence.commands import export as arguments_of
from gpufence.errors import ToolError
from gpufence.export import metrics
from gpufence.export.http_metrics import parse_listen
from gpufence.state import time_file
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from . import warm_commands
from .gpufence_command import bare, gpufence
from .region_files import GIB, RegionFile, Signed, TimeFile, own_namespace, start_ticks

UUID = "GPU-ab000203-0405-0607-0809-0a0b0c0d0e0f"
GPU = {"gpu": "", "UUID": UUID, "modelName": ""}
OWN = {**GPU, "namespace": "", "pod": "", "container": "", "region": "web"}


def base(**env: str) -> dict[str, str]:
    return {**warm_commands.BARE, **env}


def export(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command as its own process, with nothing inherited but PATH."""
    return gpufence("export", *arguments, **env)


def read(text: str) -> dict[str, Metric]:
    """Prometheus's own reader; by name, which must be said once."""
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    for family in families:
        series = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
        assert len(set(series)) == len(series), family.name
        assert family.documentation
        assert family.type in ("gauge", "counter")
    return {family.name: family for family in families}


def told(*arguments: str | Path, **env: str) -> dict[str, Metric]:
    done = export(*arguments, **env)
    assert (done.returncode, done.stderr) == (0, "")
    return read(done.stdout)


def values(family: Metric) -> list[tuple[dict[str, str], float]]:
    return [(sample.labels, sample.value) for sample in family.samples]


@contextmanager
def web(folder: Path, container: str = "web") -> Iterator[RegionFile]:
    """One container with a limit of each kind."""
    with RegionFile(folder, container) as made, TimeFile(folder) as cores:
        made.device(0, orphans=7)
        made.process(0, Signed())
        made.use(0, 0, held=3, overhead=2, limit=4 * GIB, activity=(5, 6, 7 * 10**8))
        cores.device(0)
        cores.tenant(0, 0, time_file.tenant_key(container), charged_ns=25 * 10**8)
        cores.member(0, 0, 0, Signed())
        yield made


def test_every_set_of_names_can_be_asked_for() -> None:
    assert tuple(metrics.NAMES) == arguments_of.NAMES


def test_everything_is_told_in_base_units(tmp_path: Path) -> None:
    with web(tmp_path):
        found = told("--once", "--state-dir", tmp_path)

    assert {name: values(family)[0] for name, family in found.items()} == {
        "gpufence_memory_limit_known": (OWN, 1),
        "gpufence_memory_limit_bytes": (OWN, 4 * GIB),
        "gpufence_memory_used_bytes": (OWN, 10),
        "gpufence_memory_orphan_bytes": (OWN, 7),
        "gpufence_memory_refusals": (OWN, 5),
        "gpufence_core_limit_known": (OWN, 1),
        "gpufence_core_limit_ratio": (OWN, 0.3),
        "gpufence_core_soft_limit_ratio": (OWN, 0.6),
        "gpufence_gpu_time_seconds": (OWN, 2.5),
        "gpufence_launches_held": (OWN, 6),
        "gpufence_launches_held_seconds": (OWN, 0.7),
        "gpufence_processes": (OWN, 1),
        "gpufence_unreadable_files": ({}, 0),
    }
    assert found["gpufence_memory_refusals"].type == "counter"


def test_containers_of_a_nodes_agent_are_told_when_its_folder_is_named(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "usual", tmp_path / "agent" / "containers" / "g0" / "state"
    ours.mkdir()
    theirs.mkdir(parents=True)
    with web(ours), web(theirs, "pod"):
        without = told("--once", "--state-dir", ours)
        found = told("--once", "--state-dir", ours, "--agent-dir", tmp_path / "agent")

    def regions(told: dict[str, Metric]) -> list[str]:
        return [labels["region"] for labels, _ in values(told["gpufence_memory_used_bytes"])]

    assert (regions(without), regions(found)) == (["web"], ["pod", "web"])


def test_an_empty_machine_is_told_as_one(tmp_path: Path) -> None:
    assert set(told("--state-dir", tmp_path)) == {"gpufence_unreadable_files"}


def test_names_that_need_quoting_come_back_whole(tmp_path: Path) -> None:
    odd = 'a"b\\c\nd'
    with web(tmp_path, odd):
        found = told("--state-dir", tmp_path)

    assert values(found["gpufence_processes"])[0][0]["region"] == odd


def test_a_pods_names_are_labels(tmp_path: Path) -> None:
    names = {
        "VGPU_POD_NAME": "trainer-0",
        "VGPU_POD_NAMESPACE": "ml",
        "VGPU_CONTAINER_NAME": "main",
    }
    member = subprocess.Popen(
        ["cat"],
        env={"PATH": os.environ["PATH"], **names},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        # Before it answers, the kernel may not show its variables yet.
        assert member.stdin is not None
        assert member.stdout is not None
        member.stdin.write(b"!")
        member.stdin.flush()
        assert member.stdout.read(1) == b"!"
        with RegionFile(tmp_path) as made:
            made.device(0)
            ticks = start_ticks(member.pid)
            made.process(0, Signed(member.pid, 0, ticks, own_namespace()))
            made.use(0, 0, held=3)
            found = told("--state-dir", tmp_path, "--names", "gpufence", "--names", "hami")
    finally:
        member.kill()
        member.communicate()

    (labels, _), *_ = values(found["gpufence_memory_used_bytes"])
    assert labels == {**OWN, "namespace": "ml", "pod": "trainer-0", "container": "main"}
    (labels, _), *_ = values(found["hami_vgpu_memory_used_bytes"])
    assert (labels["namespace"], labels["pod"], labels["container"]) == ("ml", "trainer-0", "main")


def test_hamis_names_and_labels(tmp_path: Path) -> None:
    with web(tmp_path):
        new = told("--state-dir", tmp_path, "--names", "hami")
        old = told("--state-dir", tmp_path, GPUFENCE_EXPORT_NAMES="hami-legacy")

    place = ("", "", "web", "0", UUID)
    labels = dict(
        zip(("namespace", "pod", "container", "vdevice_index", "device_uuid"), place, strict=True)
    )
    assert {name: values(family) for name, family in new.items()} == {
        "hami_vgpu_memory_used_bytes": [(labels, 10)],
        "hami_vgpu_memory_limit_bytes": [(labels, 4 * GIB)],
        "hami_vgpu_memory_context_bytes": [(labels, 2)],
        "hami_vgpu_memory_module_bytes": [(labels, 0)],
        "hami_vgpu_memory_buffer_bytes": [(labels, 8)],
        "hami_container_device_memory_bytes": [(labels, 10)],
        "hami_container_device_utilization_ratio": [(labels, 0)],
    }
    labels = dict(
        zip(("podnamespace", "podname", "ctrname", "vdeviceid", "deviceuuid"), place, strict=True)
    )
    assert {name: values(family) for name, family in old.items()} == {
        "vGPU_device_memory_usage_in_bytes": [(labels, 10)],
        "vGPU_device_memory_limit_in_bytes": [(labels, 4 * GIB)],
        "Device_utilization_desc_of_container": [(labels, 0)],
    }


def test_alnairs_name_and_labels(tmp_path: Path) -> None:
    with web(tmp_path):
        found = told("--state-dir", tmp_path, "--names", "alnair", NODE_NAME="node-7")

    labels = {"pid": "7", "pod_name": "web", "namespace": "", "nodeName": "node-7", "gpu_idx": "0"}
    assert {name: values(family) for name, family in found.items()} == {
        "alnair_cuda_mem_used": [(labels, 3)]
    }


def test_a_file_is_replaced_whole_and_readable(tmp_path: Path) -> None:
    kept = tmp_path / "out" / "gpufence.prom"
    kept.parent.mkdir()
    kept.write_text("old")
    with web(tmp_path / "regions"):
        done = export("--textfile", kept, "--state-dir", tmp_path / "regions")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "gpufence_memory_used_bytes" in read(kept.read_text())
    assert kept.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in kept.parent.iterdir()] == ["gpufence.prom"]


@contextmanager
def server(folder: Path, listen: str = "127.0.0.1:0") -> Iterator[int]:
    """The command serving; its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gpufence", "export", "--state-dir", str(folder)],
        env=base(GPUFENCE_EXPORT_LISTEN=listen),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("gpufence: serving http://"), line
        yield int(line.rpartition(":")[2].partition("/")[0])
    finally:
        process.terminate()
        rest = process.communicate()[1]
    assert rest == ""


def answer(port: int, method: str, path: str) -> tuple[int, str, str]:
    """Status, content type and body."""
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    asked.request(method, path)
    got = asked.getresponse()
    body = got.read().decode()
    asked.close()
    return got.status, got.getheader("Content-Type") or "", body


def test_it_serves_one_path_to_many_at_once(tmp_path: Path) -> None:
    answers: list[tuple[int, str, str]] = []
    with web(tmp_path), server(tmp_path) as port:
        clients = [
            threading.Thread(target=lambda: answers.append(answer(port, "GET", "/metrics")))
            for _ in range(8)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()

        assert answer(port, "HEAD", "/metrics")[0::2] == (200, "")
        assert answer(port, "GET", "/metrics?x=1")[0] == 200
        assert answer(port, "GET", "/")[0] == 404
        assert answer(port, "GET", "/../etc/passwd")[0] == 404
        assert answer(port, "POST", "/metrics")[0] == 501

    assert [status for status, _, _ in answers] == [200] * 8
    assert all(kind == "text/plain; version=0.0.4; charset=utf-8" for _, kind, _ in answers)
    assert "gpufence_memory_used_bytes" in read(answers[0][2])


def test_silent_and_babbling_clients_keep_nobody_out(tmp_path: Path) -> None:
    with web(tmp_path), server(tmp_path) as port:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
        babble = socket.create_connection(("127.0.0.1", port))
        babble.sendall(b"\x00\xff garbage\r\n\r\n")

        assert answer(port, "GET", "/metrics")[0] == 200

        for each in (*silent, babble):
            each.close()


def test_more_clients_than_threads_are_hung_up_on_and_not_for_long(tmp_path: Path) -> None:
    with web(tmp_path), server(tmp_path) as port:
        many = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(40)]
        hung_up = [each for each in many if each.recv(1) == b""]  # all of them, after 5 s at most

        assert len(hung_up) == 40
        assert answer(port, "GET", "/metrics")[0] == 200

        for each in many:
            each.close()


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:9835", ("127.0.0.1", 9835)),
        ("[::1]:1", ("::1", 1)),
        (":0", ("", 0)),
        ("localhost:80", ("localhost", 80)),
    ],
)
def test_addresses_that_are_understood(text: str, parsed: tuple[str, int]) -> None:
    assert parse_listen(text) == parsed


@pytest.mark.parametrize("text", ["9835", "", ":", "::1:80", "a:b", "a:65536", "a:-1", "a:\u0663"])
def test_addresses_that_are_not(text: str) -> None:
    with pytest.raises(ToolError):
        parse_listen(text)


@pytest.mark.parametrize(
    ("arguments", "env", "status", "complaint"),
    [
        (("--names", "x"), {}, 2, " export: argument --names: invalid choice: 'x'"),
        (
            (),
            {"GPUFENCE_EXPORT_NAMES": "hami,x"},
            2,
            ": GPUFENCE_EXPORT_NAMES=x refused: it is non",
        ),
        (("--listen", "80"), {}, 2, ": listen address '80' refused: it is not ADDRESS:PORT. Write"),
        (
            ("--listen", "\udcff:1"),
            {},
            2,
            ": listen address '?:1' refused: it is not ADDRESS:PORT.",
        ),
        (("--listen", "203.0.113.1:1"), {}, 1, ": cannot listen on 203.0.113.1:1: cannot assign"),
        (
            ("--textfile", "/nowhere/x"),
            {},
            1,
            ": cannot write /nowhere/x: no such file or directory",
        ),
        (("--textfile", "/proc"), {}, 1, ": cannot write /proc: "),
        (
            ("--once", "--listen", ":1"),
            {},
            2,
            " export: argument --listen: not allowed with argument",
        ),
        (("x",), {}, 2, " export: unrecognized arguments: x"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    arguments: tuple[str, ...], env: dict[str, str], status: int, complaint: str
) -> None:
    done = export(*arguments, **env)

    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(f"gpufence{complaint}")
    assert done.stderr.count("\n") == 1


def test_the_text_is_version_0_0_4_of_the_format_and_nothing_is_added() -> None:
    families = (
        metrics.Family("a_total", "counter", "Line\nand \\.", (({"b": "x", "a": 'q"\n\\'}, 5),)),
        metrics.Family("none", "gauge", "Nothing.", ()),
        metrics.Family("g", "gauge", "Two.", (({}, 4 << 30), ({"z": "1"}, 0.3))),
    )

    assert metrics.text(families) == (
        "# HELP a_total Line\\nand \\\\.\n# TYPE a_total counter\n"
        'a_total{a="q\\"\\n\\\\",b="x"} 5.0\n'
        "# HELP g Two.\n# TYPE g gauge\n"
        'g 4.294967296e+09\ng{z="1"} 0.3\n'
    )


@pytest.mark.parametrize("words", [(), ("--listen", "127.0.0.1:0"), ("--textfile", "kept")])
def test_without_the_package_that_writes_the_format_one_line_says_so(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    done = bare("export", *words, "--state-dir", tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "gpufence: no metrics: the Python package prometheus-client is not installed."
        " Run `pip install prometheus-client`.\n"
    )
