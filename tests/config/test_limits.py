"""Limits as the library reads them for the tools: a table of texts and sources, files, any text."""

from __future__ import annotations

import os
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from findsyms import elf, vet
from gpufence import locate
from gpufence.config import library, limits, options, sizes, sources
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from .configuration_cases import (
    CARD_BYTES,
    GIB,
    TABLE,
    Machine,
    answer,
    check,
    machine,
    shares,
    two_gpus,
)  # fmt: skip

REPO = Path(__file__).resolve().parents[2]
SMALL_FILE_BYTES = 64 << 10  # of a file that limits are read from


def told(error: sizes.TextError) -> list[str]:
    """What is wrong with a text, and what to write."""
    return [error.clause, error.fix]


@pytest.mark.parametrize("vector", TABLE["sizes"], ids=lambda v: repr(v["text"][:30]))
def test_a_size_is_what_the_table_says(vector: dict[str, Any]) -> None:
    if "fault" in vector:
        with pytest.raises(sizes.TextError) as refused:
            sizes.parse_size(vector["text"])
        assert told(refused.value) == TABLE["faults"][vector["fault"]]
        return

    size = sizes.parse_size(vector["text"])

    if size.percent_of_device:
        assert sizes.part_of(CARD_BYTES, size.amount) == vector["of_80_gib"]
    else:
        assert size.amount == vector["bytes"]


GRAMMARS = {
    "percents": ("percent", "thousandths"),
    "ratios": ("ratio", "thousandths"),
    "megabytes": ("megabytes", "bytes"),
    "switches": ("switch", "on"),
    "priorities": ("priority", "priority"),
    "weights": ("weight", "weight"),
    "bursts": ("burst", "ns"),
    "floors": ("floor", "thousandths"),
}


@pytest.mark.parametrize(
    ("kind", "vector"), [(kind, vector) for kind in GRAMMARS for vector in TABLE[kind]]
)
def test_the_smaller_grammars_are_what_the_table_says(kind: str, vector: dict[str, Any]) -> None:
    grammar, key = GRAMMARS[kind]
    if "fault" in vector:
        with pytest.raises(sizes.TextError) as refused:
            library.parse(grammar, vector["text"])
        assert told(refused.value) == TABLE["faults"][vector["fault"]]
    else:
        assert library.parse(grammar, vector["text"]) == vector[key]


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: str(case["name"]))
def test_sources_mean_what_the_table_says(tmp_path: Path, case: dict[str, Any]) -> None:
    check(case, answer(machine(tmp_path, case)))


def test_the_first_of_two_equal_names_counts_as_it_does_for_getenv() -> None:
    system = sources.System("/nowhere", ("VCUDA_MEMORY_LIMIT=1g", "VCUDA_MEMORY_LIMIT=2g"))

    assert [claim.amount for claim in limits.read(system).claims] == [GIB]


@pytest.mark.parametrize(
    "path",
    ["/etc/gpufence/gpufence.conf", "/overrideEnv", "/etc/vcuda/config.yaml",
     "/etc/vgpu-manager/config/vgpu.config"],
)  # fmt: skip
def test_something_that_is_no_file_is_refused_without_waiting(tmp_path: Path, path: str) -> None:
    place = tmp_path / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(place)

    with pytest.raises(sources.ConfigError, match=re.escape(path)):
        limits.read(sources.System(str(tmp_path)))


@pytest.mark.parametrize("path", ["/overrideEnv", "/etc/vcuda/config.yaml"])
def test_a_file_beyond_the_bound_is_refused(tmp_path: Path, path: str) -> None:
    place = tmp_path / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"#" * SMALL_FILE_BYTES)

    with pytest.raises(sources.ConfigError, match="large"):
        limits.read(sources.System(str(tmp_path)))


def test_more_limits_than_the_library_holds_are_refused() -> None:
    system = sources.System("/nowhere", tuple(f"GPUFENCE_MEMORY_LIMIT_{i}=1g" for i in range(513)))

    with pytest.raises(sources.ConfigError, match="more than 512 limits"):
        limits.read(system)


def test_a_name_beyond_one_line_stays_one_line() -> None:
    system = sources.System("/nowhere", ("GPUFENCE_MEMORY_LIMIT_\n\x1b[31m=1",))

    with pytest.raises(sources.ConfigError) as refused:
        limits.read(system)

    assert str(refused.value).isprintable()


def test_the_library_for_tools_exports_nothing_that_could_stand_before_the_driver() -> None:
    exported = elf.read_library(locate.limits(), vet.vet(locate.limits())).symbols

    assert [symbol.name for symbol in exported] == ["gpufence_limits"]


def test_an_answer_larger_than_the_room_is_asked_for_again() -> None:
    names = [f"GPUFENCE_MEMORY_LIMIT_{i}=1{' ' * 40}g" for i in range(512)]  # more than 64 KiB

    claims = limits.read(sources.System("/nowhere", tuple(names))).claims

    assert [claim.source for claim in claims] == names


def test_parts_of_a_device_round_down_and_saturate() -> None:
    assert sizes.part_of(3, 50 * sizes.PERCENT_STEPS) == 1
    assert sizes.part_of(2**63, 10**15) == 2**64 - 1


def test_every_dialect_names_its_claims_so_that_a_reader_finds_them(tmp_path: Path) -> None:
    case = {
        "env": {"VCUDA_MEMORY_LIMIT": "x" * 100},
        "files": {"/etc/vcuda/config.yaml": "memory_limit: 1g\n"},
    }
    claims = limits.read(machine(tmp_path, case).system)

    assert [claim.source for claim in claims.claims] == [
        "memory_limit: 1g in /etc/vcuda/config.yaml"
    ]


def vgpu_config(**changes: object) -> bytes:
    """A vgpu.config of one device; `changes` spoil it field by field."""
    of = {
        "magic": 0x56474346, "layout": 1, "size": 2560, "count": 16, "seq": 2,
        "uuid": b"GPU-22222222-2222-2222-2222-222222222222", "total": 4 * GIB, "real": 2 * GIB,
        "hard": 30, "soft": 60, "core_limit": 1, "hard_limit": 0, "memory_limit": 1,
        "oversold": 1, "active": 1, **changes,
    }  # fmt: skip
    content = bytearray(8192)
    struct.pack_into("<4I", content, 0, of["magic"], of["layout"], of["size"], of["count"])
    content[128:131], content[304:308] = b"uid", b"main"
    struct.pack_into("<I4x48sQQII", content, 512 + 128, of["seq"], of["uuid"], of["total"],
                     of["real"], of["hard"], of["soft"])  # fmt: skip
    flags = ("core_limit", "hard_limit", "memory_limit", "oversold", "active")
    struct.pack_into("<5I", content, 512 + 128 + 80, *(of[flag] for flag in flags))
    return bytes(content[: of.get("length", 8192)])


def with_vgpu_config(root: Path, content: bytes, *environment: str) -> sources.System:
    """A machine with that file."""
    place = root / "etc/vgpu-manager/config/vgpu.config"
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    return sources.System(str(root), environment)


def test_vgpu_config_beats_the_variables_and_says_where_they_differ(tmp_path: Path) -> None:
    system = with_vgpu_config(tmp_path, vgpu_config(), "CUDA_MEM_LIMIT_1=1g", "CUDA_CORE_LIMIT=5")

    got = answer(Machine(Path(system.root), system.environment, two_gpus()))
    limited = got["resolution"]["limits"]

    assert [each["memory_bytes"] for each in limited] == [None, 4 * GIB]
    assert shares(limited)[1] == [30_000, 60_000]
    assert limited[1]["oversubscribe"] == 2000
    assert got["container"] == "uid_main"
    assert got["notes"] == [
        "CUDA_MEM_LIMIT_1=1g has no effect: "
        "the limit in /etc/vgpu-manager/config/vgpu.config applies"
    ]


def test_vgpu_config_without_a_flag_is_no_limit_even_if_a_variable_says_so(tmp_path: Path) -> None:
    content = vgpu_config(memory_limit=0, core_limit=0)
    claims = limits.read(with_vgpu_config(tmp_path, content, "CUDA_MEM_LIMIT=1g"))

    assert not claims.any_limit


@pytest.mark.parametrize(
    "spoilt",
    [
        {"magic": 1}, {"layout": 2}, {"size": 2561}, {"count": 8}, {"length": 2559}, {"seq": 3},
        {"length": 0}, {"uuid": b"0"}, {"total": 0}, {"total": 2**63}, {"hard": 0}, {"hard": 101},
        {"soft": 0}, {"active": 2}, {"memory_limit": 7}, {"core_limit": 2}, {"oversold": 9},
    ],
)  # fmt: skip
def test_a_spoilt_vgpu_config_is_refused(tmp_path: Path, spoilt: dict[str, Any]) -> None:
    with pytest.raises(sources.ConfigError, match=r"^/etc/vgpu-manager/config/vgpu\.config "):
        limits.read(with_vgpu_config(tmp_path, vgpu_config(**spoilt)))


def shared_file(*devices: tuple[int, bytes, int, int, int], tag: int = 1) -> str:
    """What vgpu.rs's hypervisor shares: (index, uuid, percent, bytes, active) of each GPU."""
    content = bytearray(35504)
    struct.pack_into("<I", content, 0, tag)
    for index, uuid, percent, memory_bytes, active in devices:
        at = 8 + 136 * index
        content[at : at + len(uuid)] = uuid
        struct.pack_into("<I4xQ", content, at + 64, percent, memory_bytes)
        struct.pack_into("<I", content, at + 128, active)
    return content.decode("latin-1")


SHARED = "/run/tensor-fusion/shm/shm"
SECOND = b"GPU-22222222-2222-2222-2222-222222222222"


def test_what_the_hypervisor_shares_hides_the_variables(tmp_path: Path) -> None:
    content = shared_file((3, SECOND, 40, 2 * GIB, 1), (4, SECOND, 1, 1, 0))
    env = {"TENSOR_FUSION_CUDA_MEM_LIMIT": '{"0":1}', "TF_CUDA_MEMORY_LIMIT": "1"}

    got = answer(machine(tmp_path, {"env": env, "files": {SHARED: content}}))

    first, second = got["resolution"]["limits"]
    assert (first["memory_bytes"], first["memory_source"]) == (None, "")
    assert (second["memory_bytes"], second["memory_source"]) == (2 * GIB, f"GPU 3 in {SHARED}")
    assert shares([first, second]) == [[0, 0], [40_000, 0]]


@pytest.mark.parametrize("env", [{"SHM_PATH": "/other"}, {"TF_SHM_FILE": "/other/shm"}])
def test_the_shared_file_may_be_elsewhere(tmp_path: Path, env: dict[str, str]) -> None:
    content = shared_file((0, SECOND.lower(), 100, GIB, 1))

    got = answer(machine(tmp_path, {"env": env, "files": {"/other/shm": content}}))

    second = got["resolution"]["limits"][1]
    assert (second["memory_bytes"], second["memory_source"]) == (GIB, "GPU 0 in /other/shm")
    assert shares([second]) == [[0, 0]]


def test_vgpu_rs_switched_off_takes_the_shared_file_away(tmp_path: Path) -> None:
    files = {SHARED: shared_file((0, SECOND, 40, GIB, 1))}

    got = answer(machine(tmp_path, {"env": {"ENABLE_CUDA_HOOKS": "false"}, "files": files}))

    assert (got["any_limit"], got["claims"]) == (False, [])


@pytest.mark.parametrize(
    "content",
    [
        shared_file(tag=0), shared_file()[:-1], shared_file() + "x", "",
        shared_file((0, b"gpu", 1, 1, 1)), shared_file((0, SECOND, 101, 1, 1)),
        shared_file((0, SECOND, 1, 2**63, 1)),
    ],
)  # fmt: skip
def test_a_spoilt_shared_file_is_refused(tmp_path: Path, content: str) -> None:
    got = answer(machine(tmp_path, {"env": {}, "files": {SHARED: content}}))

    assert got["why"].startswith(f"{SHARED} ")


def test_every_name_is_read_once_and_found_by_itself() -> None:
    names = [option.name for option in options.OPTIONS]

    assert len(names) == len(set(names))
    assert [options.find(name) for name in names] == [(each, "") for each in options.OPTIONS]


# What nobody thought of: an answer that can be read, or a line that says what is wrong.

MANY = settings(
    max_examples=int(os.environ.get("GPUFENCE_TEST_EXAMPLES", "500")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
BYTES = st.characters(max_codepoint=255)
SIZE_LIKE = st.from_regex(
    r"\A ?[-+]?[0-9]{0,22}(\.[0-9]{0,30})? ?([kmgtKMGTpbBiI%]|bytes?|Byte){0,3}[ \t\n]?\Z"
)


@MANY
@given(name=st.sampled_from(["size", *(name for name, _ in GRAMMARS.values())]),
       text=SIZE_LIKE | st.text())  # fmt: skip
@example(name="size", text="1" * 5000 + "." + "9" * 5000 + "t")
def test_any_text_is_an_amount_or_refused_in_two_sentences(name: str, text: str) -> None:
    try:
        value = library.parse(name, text)
    except sizes.TextError as error:
        refusal = told(error)
    else:
        refusal = None
    assert refusal is None or refusal in TABLE["faults"].values()
    if refusal:
        return
    amount = value[0] if name == "size" else value
    assert 0 <= amount < 2**63
    # Blanks around a number mean nothing.
    if name not in ("switch", "priority"):
        assert library.parse(name, f" {text} ") == value


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
    [each.name for each in options.OPTIONS if each.setting not in ("ELSEWHERE", "IGNORED")]
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
def test_any_sources_are_read_or_refused_with_one_line(
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

    got = answer(asked)

    for why in (got.get("why"), got.get("resolution", {}).get("why")):
        assert why is None or (why.isascii() and why.isprintable() and ". " in why)
    if "why" not in got:
        claims = limits.read(asked.system)
        assert len(claims.claims) == len(got["claims"])
        # A row for each GPU that is named, and no claim of its kind is lost.
        rows = [each for row in claims.rows for each in (row.applies, *row.overruled) if each]
        assert {id(each) for each in rows} >= {id(each) for each in claims.claims}


OWN_NAMES = st.one_of(
    st.builds(
        lambda name, at, text: name[:at] + text + name[at + 1 :],
        st.sampled_from([each.name for each in options.OPTIONS if each.dialect == "gpufence"]),
        st.integers(9, 24),
        st.sampled_from(["", "X", "_", "e", "_0", "_GPU-", "_PORT_", "_PORT_8", "\xb2"]),
    ),
    st.builds(
        "GPUFENCE_{}".format, st.text(st.characters(codec="latin-1", exclude_characters="\0="))
    ),
)


@MANY
@given(name=OWN_NAMES)
def test_a_name_of_ours_is_unknown_only_where_no_option_spells_it(name: str) -> None:
    why = answer(Machine(Path("/nowhere"), (f"{name}=1",), ())).get("why", "")

    if options.find(name):
        assert not why.startswith("unknown variable")
    elif not name.startswith(("GPUFENCE_RUN_", "GPUFENCE_TEST_")) and "_PORT" not in name:
        assert why.startswith(f"unknown variable {sizes.quote(name)[:60]}"), name
