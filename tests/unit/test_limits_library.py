"""Limits as the library reads them, held to the same table as Python, and to Python itself.

`config_vectors` answers with the library's own sources; texts that nobody thought of come from
hypothesis, and the two languages must give the same numbers and the same words.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpufence.config import options, own_names
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from .configuration_cases import TABLE, Machine, answer, check, grammar, machine, two_gpus

REPO = Path(__file__).resolve().parents[2]
MANY = settings(
    max_examples=int(os.environ.get("GPUFENCE_TEST_EXAMPLES", "500")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


class Library:
    """The library's readers in a process of their own."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen(
            [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}
        )

    def ask(self, *texts: str) -> Any:  # noqa: ANN401 - whatever JSON it prints
        """One question; characters are bytes."""
        assert self.process.stdin
        assert self.process.stdout
        frame = struct.pack("<I", len(texts))
        for text in texts:
            raw = text.encode("latin-1")
            frame += struct.pack("<I", len(raw)) + raw
        self.process.stdin.write(frame)
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def claims(self, asked: Machine) -> Any:  # noqa: ANN401
        """What configuration_cases.answer() says for Python."""
        devices = "".join(
            f"{d.ordinal} {-1 if d.nvml_index is None else d.nvml_index} {d.uuid.hex()} "
            f"{d.total_bytes};"
            for d in asked.devices
        )
        given_answer = self.ask("claims", str(asked.root), devices, *asked.environment)
        if given_answer["read"] == "invalid":
            del given_answer["log"]
        if given_answer.get("resolved") == "invalid":
            del given_answer["warnings"]
        return given_answer


@pytest.fixture(scope="module")
def library() -> Iterator[Library]:
    """One process for the whole module."""
    program = Path(os.environ.get("GPUFENCE_BUILD", REPO / "build")) / "tests" / "config_vectors"
    if not program.exists():
        pytest.skip(f"{program} is not built: run ci/build --tests first")
    started = Library(program)
    yield started
    assert started.process.stdin
    started.process.stdin.close()
    assert started.process.wait(timeout=10) == 0


def test_both_languages_know_the_same_names_in_the_same_order(library: Library) -> None:
    assert library.ask("options") == [
        [option.name, option.dialect.title, option.setting, option.keys]
        for option in options.OPTIONS
    ]


def test_both_languages_know_the_same_names_that_other_parts_read(library: Library) -> None:
    assert library.ask("elsewhere") == list(own_names.ELSEWHERE)


OWN_NAMES = st.one_of(
    st.builds(
        lambda name, at, text: name[:at] + text + name[at + 1 :],
        st.sampled_from([each.name for each in options.OPTIONS if each.dialect == 0]),
        st.integers(9, 24),
        st.sampled_from(["", "X", "_", "e", "_0", "_GPU-", "_PORT_", "_PORT_8", "\xb2"]),
    ),
    st.builds(
        "GPUFENCE_{}".format, st.text(st.characters(codec="latin-1", exclude_characters="\0="))
    ),
)


@MANY
@given(name=OWN_NAMES, in_file=st.booleans(), first=st.booleans())
def test_both_languages_refuse_the_same_names(
    library: Library, tmp_path: Path, name: str, in_file: bool, first: bool
) -> None:
    shutil.rmtree(tmp_path / "root", ignore_errors=True)
    line = f"{name.removeprefix('GPUFENCE_').lower() if in_file else name}=1"
    path = "/etc/gpufence/gpufence.conf" if in_file else "/proc/1/environ"
    files = {path: line} if in_file or first else {}
    asked = machine(tmp_path / "root", {"env": {}, "files": files})
    if not files:
        asked = Machine(asked.root, (line,), asked.devices)

    assert library.claims(asked) == answer(asked)


GRAMMARS = {"sizes": "size", "percents": "percent", "ratios": "ratio", "megabytes": "megabytes",
            "switches": "switch", "priorities": "priority", "weights": "weight",
            "bursts": "burst", "floors": "floor"}  # fmt: skip


@pytest.mark.parametrize("kind", GRAMMARS)
def test_the_grammars_are_what_the_table_says(library: Library, kind: str) -> None:
    for vector in TABLE[kind]:
        got = library.ask("grammar", GRAMMARS[kind], vector["text"])
        assert got == grammar(GRAMMARS[kind], vector["text"]), vector
        assert ("why" in got) == ("fault" in vector), vector


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: str(case["name"]))
def test_sources_mean_what_the_table_says(
    library: Library, tmp_path: Path, case: dict[str, Any]
) -> None:
    asked = machine(tmp_path, case)
    got = library.claims(asked)

    check(case, got)
    assert got == answer(asked)


BYTES = st.characters(max_codepoint=255)
SIZE_LIKE = st.from_regex(
    r"\A ?[-+]?[0-9]{0,22}(\.[0-9]{0,30})? ?([kmgtKMGTpbBiI%]|bytes?|Byte){0,3}[ \t\n]?\Z"
)


@MANY
@given(name=st.sampled_from([*GRAMMARS.values(), "uuid"]), text=SIZE_LIKE | st.text(BYTES))
@example(name="size", text="1" * 5000 + "." + "9" * 5000 + "t")
@example(name="uuid", text="MIG-11111111-1111-1111-1111-111111111111")
@example(name="uuid", text="mig-GPU-11111111-1111-1111-1111-111111111111")
def test_both_languages_read_any_text_alike(library: Library, name: str, text: str) -> None:
    assert library.ask("grammar", name, text) == grammar(name, text)


UUID = "22222222-2222-2222-2222-222222222222"
KEYS = st.sampled_from(["", "", "_0", "_1", "_7", "_01", "_", "_x", "_GPU-" + UUID, f"_gpu_{UUID}"])
VALUES = st.one_of(
    SIZE_LIKE,
    st.sampled_from(
        ["", "0", "1g", "512m", "50%", "30", "100", "true", "off", "on", "1.5", "disable", "false",
         "debug", "a=trace,off", "3", "-1", "GPU-" + UUID, f"GPU-{UUID},GPU-{UUID},", "all",
         '{"0":1048576}', '{"0":1048576,"GPU-' + UUID + '":7}', '{"1":40}', '{"1":1,}', "process",
         "/run/x", "/opt/x.conf", "shared", "always", "file", "file:/a", "null", "yes",
         "10.0.0.1", "::1", "8000", "65536"]
    ),
    st.text(BYTES.filter(lambda c: c != "\0"), max_size=8),
)  # fmt: skip
NAMES = st.sampled_from(
    [each.name for each in options.OPTIONS if each.setting < options.Setting.ELSEWHERE]
)
ENTRIES = st.builds(lambda name, key, text: f"{name}{key}={text}", NAMES, KEYS, VALUES)
PLAIN_ENTRIES = st.builds(lambda name, text: f"{name}={text}", NAMES, VALUES)
ENVIRONMENTS = st.lists(PLAIN_ENTRIES, max_size=5) | st.lists(ENTRIES, max_size=6)
LINES = st.one_of(
    st.sampled_from(
        ["memory_limit = 1g", "memory_limit_1=2g", "core_limit = 30", "core_policy=shared",
         "core_soft_limit_1 = 70", "memory_limit: 10m # x",
         "memoryLimit: '1g'", "device_name: \"a b\"", "x:", "  y: 1", "- z", "---", "# c",
         "vmem:1g", "vmem: 7", "CUDA_DEVICE_MEMORY_LIMIT=1g", "CUDA_DEVICE_SM_LIMIT_0=5",
         "container = a", "memory_limit:", "'memory_limit': 3m", "target_device: x#y",
         "log_level = info", ""]
    ),
    st.text(BYTES, max_size=20),
    st.builds("memory_limit: {}".format, SIZE_LIKE | st.text(BYTES, max_size=12)),
)  # fmt: skip
FILES = st.dictionaries(
    st.sampled_from(
        ["/etc/gpufence/gpufence.conf", "/opt/x.conf", "/overrideEnv", "/etc/vcuda/config.yaml",
         "/var/lib/alnair/workspace/limits", "/run/tensor-fusion/shm/shm"]
    ),
    st.lists(LINES, max_size=4).map("\n".join),
    max_size=2,
)  # fmt: skip


@MANY
@given(environment=ENVIRONMENTS, files=FILES, first=st.none() | ENVIRONMENTS, nvml=st.booleans())
def test_both_languages_read_any_sources_alike(
    library: Library,
    tmp_path: Path,
    environment: list[str],
    files: dict[str, str],
    first: list[str] | None,
    nvml: bool,
) -> None:
    shutil.rmtree(tmp_path / "root", ignore_errors=True)
    if first is not None:
        files = {**files, "/proc/1/environ": "".join(f"{entry}\0" for entry in first)}
    written = machine(tmp_path / "root", {"env": {}, "files": files})
    asked = Machine(written.root, tuple(environment), two_gpus(nvml))

    assert library.claims(asked) == answer(asked)


@MANY
@given(data=st.data())
def test_both_languages_read_any_vgpu_config_alike(
    library: Library, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(8192)
    struct.pack_into("<4I", content, 0, 0x56474346, 1, 2560, 16)
    for device in data.draw(st.lists(st.integers(0, 15), max_size=3)):
        at = 512 + 128 * device
        content[at + 8 : at + 48] = b"GPU-%032d" % 0 + b"    "
        content[at + 8 : at + 48] = f"GPU-{UUID}".encode()
        numbers = data.draw(st.tuples(*[st.integers(0, 2**64 - 1) | st.just(1 << 30)] * 2))
        percents = data.draw(st.tuples(*[st.integers(0, 101)] * 2))
        flags = data.draw(st.tuples(*[st.sampled_from([0, 1, 1, 1])] * 5))
        struct.pack_into("<QQII5I", content, at + 56, *numbers, *percents, *flags)
    for position, byte in data.draw(
        st.lists(st.tuples(st.integers(0, 2559), st.integers(0, 255)), max_size=2)
    ):
        content[position] = byte
    shutil.rmtree(tmp_path / "root", ignore_errors=True)
    files = {"/etc/vgpu-manager/config/vgpu.config": bytes(content).decode("latin-1")}

    asked = machine(tmp_path / "root", {"env": {"CUDA_MEM_LIMIT_0": "1g"}, "files": files})

    assert library.claims(asked) == answer(asked)


@MANY
@given(data=st.data())
def test_both_languages_read_any_shared_file_alike(
    library: Library, tmp_path: Path, data: st.DataObject
) -> None:
    size = data.draw(st.sampled_from([35504] * 8 + [0, 35503, 35505]))
    content = bytearray(size)
    if size:
        struct.pack_into("<I", content, 0, data.draw(st.sampled_from([1] * 8 + [0, 2])))
        for device in data.draw(st.lists(st.integers(0, 15), max_size=3)):
            at = 8 + 136 * device
            content[at : at + 40] = f"GPU-{UUID}".encode()
            memory = data.draw(st.integers(0, 2**64 - 1) | st.sampled_from([0, 1 << 30]))
            struct.pack_into("<I4xQ", content, at + 64, data.draw(st.integers(0, 101)), memory)
            struct.pack_into("<I", content, at + 128, data.draw(st.sampled_from([0, 1, 1, 2])))
        for position in data.draw(st.lists(st.integers(0, 2191), max_size=2)):
            content[position] = data.draw(st.integers(0, 255))
    shutil.rmtree(tmp_path / "root", ignore_errors=True)
    files = {"/run/tensor-fusion/shm/shm": bytes(content).decode("latin-1")}

    asked = machine(tmp_path / "root", {"env": {"TF_CUDA_MEMORY_LIMIT": "1024"}, "files": files})

    assert library.claims(asked) == answer(asked)
