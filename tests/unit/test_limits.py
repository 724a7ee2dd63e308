"""Limits as Python reads them: the table that the library is held to as well, and files."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from gpufence.config import dialects, limits, options, sizes, sources, terms

from .configuration_cases import CARD_BYTES, GIB, TABLE, answer, check, machine, two_gpus

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("vector", TABLE["sizes"], ids=lambda v: repr(v["text"][:30]))
def test_a_size_is_what_the_table_says(vector: dict[str, Any]) -> None:
    if "fault" in vector:
        with pytest.raises(sizes.TextError) as refused:
            sizes.parse_size(vector["text"])
        assert refused.value.fault.name == vector["fault"]
        return

    size = sizes.parse_size(vector["text"])

    if size.percent_of_device:
        assert sizes.part_of(CARD_BYTES, size.amount) == vector["of_80_gib"]
    else:
        assert size.amount == vector["bytes"]


PARSERS = {
    "percents": (sizes.parse_percent, "thousandths"),
    "ratios": (sizes.parse_ratio, "thousandths"),
    "megabytes": (sizes.parse_megabytes, "bytes"),
    "switches": (sizes.parse_switch, "on"),
    "priorities": (terms.parse_priority, "priority"),
    "weights": (sizes.parse_weight, "weight"),
    "bursts": (sizes.parse_burst, "ns"),
    "floors": (sizes.parse_floor, "thousandths"),
}


@pytest.mark.parametrize(
    ("kind", "vector"), [(kind, vector) for kind in PARSERS for vector in TABLE[kind]]
)
def test_the_smaller_grammars_are_what_the_table_says(kind: str, vector: dict[str, Any]) -> None:
    parse, key = PARSERS[kind]
    if "fault" in vector:
        with pytest.raises(sizes.TextError) as refused:
            parse(vector["text"])
        assert refused.value.fault.name == vector["fault"]
    else:
        assert parse(vector["text"]) == vector[key]


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: str(case["name"]))
def test_sources_mean_what_the_table_says(tmp_path: Path, case: dict[str, Any]) -> None:
    check(case, answer(machine(tmp_path, case)))


def test_the_first_of_two_equal_names_counts_as_it_does_for_getenv() -> None:
    system = sources.System("/nowhere", ("VCUDA_MEMORY_LIMIT=1g", "VCUDA_MEMORY_LIMIT=2g"))

    assert [claim.amount for claim in dialects.read_claims(system).claims] == [GIB]


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
        dialects.read_claims(sources.System(str(tmp_path)))


@pytest.mark.parametrize("path", ["/overrideEnv", "/etc/vcuda/config.yaml"])
def test_a_file_beyond_the_bound_is_refused(tmp_path: Path, path: str) -> None:
    place = tmp_path / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"#" * sources.SMALL_FILE_BYTES)

    with pytest.raises(sources.ConfigError, match="large"):
        dialects.read_claims(sources.System(str(tmp_path)))


def test_more_limits_than_the_library_holds_are_refused() -> None:
    system = sources.System("/nowhere", tuple(f"GPUFENCE_MEMORY_LIMIT_{i}=1g" for i in range(513)))

    with pytest.raises(sources.ConfigError, match="more than 512 limits"):
        dialects.read_claims(system)


def test_a_name_beyond_one_line_stays_one_line() -> None:
    system = sources.System("/nowhere", ("GPUFENCE_MEMORY_LIMIT_\n\x1b[31m=1",))

    with pytest.raises(sources.ConfigError) as refused:
        dialects.read_claims(system)

    assert str(refused.value).isprintable()


def test_parts_of_a_device_round_down_and_saturate() -> None:
    assert sizes.part_of(3, 50 * sizes.PERCENT_STEPS) == 1
    assert sizes.part_of(2**63, 10**15) == 2**64 - 1


def test_every_dialect_names_its_claims_so_that_a_reader_finds_them(tmp_path: Path) -> None:
    case = {
        "env": {"VCUDA_MEMORY_LIMIT": "x" * 100},
        "files": {"/etc/vcuda/config.yaml": "memory_limit: 1g\n"},
    }
    claims = dialects.read_claims(machine(tmp_path, case).system)

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

    claims = dialects.read_claims(system)
    resolved = limits.resolve(claims, two_gpus())

    assert [each.memory_bytes for each in resolved.limits] == [None, 4 * GIB]
    second = resolved.limits[1]
    assert (second.core_millipercent, second.core_soft_millipercent) == (30_000, 60_000)
    assert resolved.limits[1].oversubscribe == 2000
    assert claims.container == "uid_main"
    assert claims.notes == [
        "CUDA_MEM_LIMIT_1=1g has no effect: /etc/vgpu-manager/config/vgpu.config says otherwise"
    ]


def test_vgpu_config_without_a_flag_is_no_limit_even_if_a_variable_says_so(tmp_path: Path) -> None:
    content = vgpu_config(memory_limit=0, core_limit=0)
    claims = dialects.read_claims(with_vgpu_config(tmp_path, content, "CUDA_MEM_LIMIT=1g"))

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
        dialects.read_claims(with_vgpu_config(tmp_path, vgpu_config(**spoilt)))


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

    assert got["limits"][0][:4] == [2**64 - 1, "", 0, 0]
    assert got["limits"][1][:4] == [2 * GIB, f"GPU 3 in {SHARED}", 40_000, 0]


@pytest.mark.parametrize("env", [{"SHM_PATH": "/other"}, {"TF_SHM_FILE": "/other/shm"}])
def test_the_shared_file_may_be_elsewhere(tmp_path: Path, env: dict[str, str]) -> None:
    content = shared_file((0, SECOND.lower(), 100, GIB, 1))

    got = answer(machine(tmp_path, {"env": env, "files": {"/other/shm": content}}))

    assert got["limits"][1][:4] == [GIB, "GPU 0 in /other/shm", 0, 0]


def test_vgpu_rs_switched_off_takes_the_shared_file_away(tmp_path: Path) -> None:
    files = {SHARED: shared_file((0, SECOND, 40, GIB, 1))}

    got = answer(machine(tmp_path, {"env": {"ENABLE_CUDA_HOOKS": "false"}, "files": files}))

    assert got["read"] == "nothing"


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

    assert got["read"] == "invalid"
    assert got["why"].startswith(f"{SHARED} ")


def test_every_name_is_read_once_and_found_by_itself() -> None:
    names = [option.name for option in options.OPTIONS]

    assert len(names) == len(set(names))
    assert [options.find(name) for name in names] == [(each, "") for each in options.OPTIONS]
