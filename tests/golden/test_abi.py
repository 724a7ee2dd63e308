"""The rendered headers stand alone, and say about types what the model says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gen import codec, ir, model, render
from gen.errors import HookgenError

from .conftest import API, LIBRARY_FLAGS, REPO, BuildFailed, Workshop

HEADERS = ("driver_abi.h", "symbols.h", "lookup.h", "real.h", "sim_symbols.h")


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("which", ["rendered", "real_texts"])
def test_header_compiles_by_itself_without_a_warning(
    header: str, which: str, workshop: Workshop, request: pytest.FixtureRequest
) -> None:
    folder = workshop.write("gen", request.getfixturevalue(which))
    (folder / "alone.cpp").write_text(f'#include "{header}"\n', encoding="utf-8")

    workshop.compile(folder, "alone.cpp", flags=(*LIBRARY_FLAGS, "-Wshadow"))


@pytest.mark.parametrize("which", ["rendered", "real_texts"])
def test_simulator_sources_compile_without_a_warning(
    which: str, workshop: Workshop, request: pytest.FixtureRequest
) -> None:
    folder = workshop.write("gen", request.getfixturevalue(which))
    door = folder / "machine" / "calls.h"
    door.parent.mkdir()
    door.write_text(
        '#include "symbols.h"\nextern "C" int gpufence_sim_call(uint16_t sym);\n', encoding="utf-8"
    )

    workshop.compile(folder, "sim_exports.cpp", "sim_nvml_exports.cpp", "sim_data.cpp")


def edited(name: str, edit: dict[str, object]) -> model.Model:
    """The invented model with one type declared otherwise."""
    apis = []
    for library in model.LIBRARIES:
        api = codec.load(API / f"{library}.json")
        types = tuple(replace(d, **edit) if d.name == name else d for d in api.types)
        apis.append(replace(api, types=types))
    lists = {path.stem: tuple(path.read_text().split()) for path in (API / "symbols").iterdir()}
    return model.build(tuple(apis), lists, (), "edited")


@pytest.mark.parametrize(
    ("name", "edit"),
    [("CUplan", {"size": 120}), ("CUshape_v1", {"align": 8}), ("nvmlReading_t", {"size": 24})],
)
def test_wrong_size_or_alignment_does_not_compile(
    name: str, edit: dict[str, object], workshop: Workshop
) -> None:
    folder = workshop.write("gen", render.render(edited(name, edit)))
    (folder / "alone.cpp").write_text('#include "driver_abi.h"\n', encoding="utf-8")

    with pytest.raises(BuildFailed, match=f"static.assert.*{name}|{name}.*static.assert"):
        workshop.compile(folder, "alone.cpp")


def test_moved_field_does_not_compile(workshop: Workshop) -> None:
    plan = next(each for each in codec.load(API / "cuda.json").types if each.name == "CUplan")
    assert isinstance(plan, ir.RecordType)
    fields = tuple(replace(f, offset=96) if f.name == "next" else f for f in plan.fields)
    folder = workshop.write("gen", render.render(edited("CUplan", {"fields": fields})))
    (folder / "alone.cpp").write_text('#include "driver_abi.h"\n', encoding="utf-8")

    with pytest.raises(BuildFailed, match="next"):
        workshop.compile(folder, "alone.cpp")


def test_small_opaque_record_by_value_is_refused() -> None:
    # Whether a struct of 16 bytes travels in integer or vector registers depends on its fields.
    with pytest.raises(HookgenError, match=r"CUshape_v1 .*touched\.json"):
        edited("CUshape_v1", {"fields": ()})


def test_record_that_contains_itself_is_refused() -> None:
    loop = (ir.Field("again", "CUshape", 0, 8),)

    with pytest.raises(HookgenError, match="contains itself"):
        edited("CUshape_v1", {"fields": loop})


def test_type_with_two_meanings_is_refused() -> None:
    apis = [codec.load(API / f"{library}.json") for library in model.LIBRARIES]
    other = ir.AliasType("CUbytes", "int")
    nvml = replace(apis[1], types=(*apis[1].types, other))

    with pytest.raises(HookgenError, match="CUbytes"):
        model.build((apis[0], nvml), {}, (), "two meanings")


def test_simulator_exports_exactly_the_newest_driver(real_texts: dict[str, str]) -> None:
    lists = REPO / "lib" / "api" / "symbols"

    for script, listed in (
        ("sim_cuda.map", lists / "libcuda-580.159.04.txt"),
        ("sim_nvml.map", lists / "libnvidia-ml-580.159.04.txt"),
    ):
        assert map_names(real_texts[script]) == listed.read_text(encoding="utf-8").split()


@pytest.mark.parametrize(
    "driver", ["470.256.02", "525.147.05", "535.274.02", "550.163.01", "580.159.04"]
)
def test_library_exports_all_that_a_driver_exports_but_the_debugger(
    driver: str, real_texts: dict[str, str]
) -> None:
    lists = REPO / "lib" / "api" / "symbols"
    exported = set(map_names(real_texts["exports.map"]))
    wanted = {
        name
        for library in ("libcuda", "libnvidia-ml")
        for name in (lists / f"{library}-{driver}.txt").read_text(encoding="utf-8").split()
    }

    assert {name for name in wanted - exported if not name.startswith("cudbg")} == set()
    assert not any(name.startswith("cudbg") for name in exported)


def map_names(text: str) -> list[str]:
    """The global names of a version script, in order."""
    inside = text[text.index("global:") : text.index("local:")]
    return [line.strip().rstrip(";") for line in inside.splitlines()[1:] if line.strip()]


def test_tables_of_addresses_need_no_code_at_load(
    workshop: Workshop, real_texts: dict[str, str]
) -> None:
    folder = workshop.write("lib", real_texts)
    workshop.compile(folder, "entries.cpp", flags=(*LIBRARY_FLAGS, "-O0"))

    assert b".init_array" not in (folder / "entries.cpp.o").read_bytes()


def test_driver_without_a_list_is_refused() -> None:
    apis = tuple(codec.load(API / f"{library}.json") for library in model.LIBRARIES)

    with pytest.raises(HookgenError, match=r"no list of that driver"):
        render.render(model.build(apis, {}, (), "no lists"))
