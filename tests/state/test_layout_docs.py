"""The tables of docs/shared-files.md are what lib/layouts/shared_files.txt says.

After a change of the list: `pytest tests/state/test_layout_docs.py --update-golden`, then read the
diff of the page.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from gen import options, shared_layouts
from gpufence.state import shared_layout
from gpufence.state.shared_layout import File, Structure

REPO = Path(__file__).resolve().parents[2]
PAGE = REPO / "docs" / "shared-files.md"
LIST = REPO / "lib" / "layouts" / "shared_files.txt"
TABLE = shared_layout.table()
COMMON = [TABLE.structures["ProcessRecord"]]

# Of every layout that is in use: a digest of where its words stand. One that changes gets another
# number.
KNOWN = {
    "REGION 5": "884e681e91c13f48",
    "TIME 4": "ec4adeb07a69fa37",
    "LIMITS 3": "9f00444ce0fbdd8f",
    "NOTICE 3": "e9a0f6517544d1cd",
    "KEPT_PAUSES 1": "bea56fbb8503bcec",
}


def structures(title: str, meaning: str, found: list[Structure]) -> str:
    """A section: each structure's table."""
    lines = [f"## {title}", "", meaning, ""]
    for each in found:
        meaning = f": {each.meaning}" if each.meaning else ""
        lines += [f"**{each.name}**, {each.bytes} bytes{meaning}", ""]
        lines += ["| at | word | type | meaning |", "|---:|---|---|---|"]
        lines += [
            f"| {member.at} | {name} | {member.type} | {member.meaning} |"
            for name, member in each.members.items()
        ]
        lines.append("")
    return "\n".join(lines)


def section(file: File) -> str:
    """A file's section."""
    version = TABLE.constants[f"{file.name}_VERSION"]
    return structures(
        f"`{file.on_disk}{version}`",
        f"{file.shared_by[0].upper()}{file.shared_by[1:]}.",
        file.structures,
    )


def test_the_pages_tables_are_those_of_the_list(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text("utf-8")
    written = page[: page.index("## In every file")]
    sections = [structures("In every file", "A place in a file belongs to a process.", COMMON)]
    made = written + "\n".join([*sections, *map(section, TABLE.files)])
    if request.config.getoption("--update-golden"):
        PAGE.write_text(made, "utf-8")
        page = made

    assert page.splitlines() == made.splitlines()


def test_the_tools_and_the_library_read_the_same_list() -> None:
    rendered = shared_layouts.read(LIST.read_text("utf-8"))

    assert [(each.name, each.value) for each in rendered.constants] == [
        (options.constant(name), value) for name, value in TABLE.constants.items()
    ]
    assert [
        (each.name, each.bytes, [(member.name, member.at) for member in each.members])
        for each in rendered.structures
    ] == [
        (each.name, each.bytes, [(name, member.at) for name, member in each.members.items()])
        for each in TABLE.structures.values()
    ]


@pytest.mark.parametrize("file", TABLE.files, ids=lambda file: file.name)
def test_a_layout_that_changes_gets_another_number(file: File) -> None:
    words = [
        (member.at, member.bytes, member.code)
        for each in (*COMMON, *file.structures)
        for member in each.members.values()
    ]
    version = TABLE.constants[f"{file.name}_VERSION"]

    digest = hashlib.sha256(repr(words).encode()).hexdigest()[:16]

    assert KNOWN.get(f"{file.name} {version}") == digest


def test_fields_are_read_where_they_stand() -> None:
    form = shared_layout.structure("KeptPauses").fields("magic", "gpu.driver", "pauses.start_ns")
    raw = bytearray(form.size)
    raw[0], raw[32], raw[92] = 1, 2, 3

    magic, driver, start_ns = form.unpack(raw)

    assert (form.size, magic, driver, start_ns) == (112, 1, b"\x02" + bytes(31), 3)


def test_a_constant_that_the_list_does_not_have_is_none() -> None:
    with pytest.raises(AttributeError, match=r"no constant MAX_GADGETS"):
        _ = shared_layout.MAX_GADGETS


@pytest.mark.parametrize(
    "line",
    [
        "constant NEW",
        "constant NEW | many |",
        'constant NEW | "short" |',
        "constant ONE | 1 |",
        "struct Part | 4 |\nword | u32 |\nword | u32 |",
        "struct Part | 4 |\nword | u16 |",
        "struct Part | 4 |\nword | u32[TWO] |",
        "struct Part | 8 |\nword | u32 |",
        "struct Part | 12 |\nword | u64 |\nother | u32 |",
        "struct Part | 12 |\nword | u32 |\nother | u64 |",
        "struct Part | 16 |\nword | u32 |\nother | u64 |\nlast | u32 |",
        "struct Part | 16 |\nword | u64 |\nother | line u64 |",
        "struct Whole | 4 |\nword | u32 |",
        "word | u32 |\nno word | u32 |",
    ],
)
def test_a_line_of_another_form_is_refused(line: str) -> None:
    text = f"constant ONE | 1 |\nstruct Whole | 4 |\nfirst | u32[ONE] |\n{line}\n"

    with pytest.raises(options.HookgenError, match=r"shared_files\.txt"):
        shared_layouts.read(text)
