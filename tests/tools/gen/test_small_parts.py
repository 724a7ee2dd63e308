"""The pure parts that have a grammar: names, macros, JSON spelling, driver versions."""

from __future__ import annotations

import json

import pytest
from gen import codec, ir
from gen.canonical import dumps_json
from gen.docs import comment_before
from gen.drivers import version_key
from gen.facts import HeaderFacts, Shapes
from gen.layouts import layouts, members
from gen.macros import value_of
from gen.naming import Name, split
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("cuMemAlloc", Name("cuMemAlloc", 1, "")),
        ("cuMemAlloc_v2", Name("cuMemAlloc", 2, "")),
        ("cuLaunchKernel_ptsz", Name("cuLaunchKernel", 1, "ptsz")),
        ("cuMemcpyDtoH_v2_ptds", Name("cuMemcpyDtoH", 2, "ptds")),
        ("cuStreamGetCaptureInfo_v3_ptsz", Name("cuStreamGetCaptureInfo", 3, "ptsz")),
        ("nvmlDeviceGetFanControlPolicy_v2", Name("nvmlDeviceGetFanControlPolicy", 2, "")),
        ("nvmlDeviceGetGpuFabricInfoV", Name("nvmlDeviceGetGpuFabricInfoV", 1, "")),
        ("nvmlRetry_NvRmControl", Name("nvmlRetry_NvRmControl", 1, "")),
        ("cuX_v12", Name("cuX", 12, "")),
        ("", Name("", 1, "")),
    ],
)
def test_names_come_apart(symbol: str, name: Name) -> None:
    assert split(symbol) == name


MACROS = {
    "PLAIN": "64",
    "HEX": "0x10u",
    "OCTAL": "010",
    "LONG": "1ULL",
    "BRACKETS": "( (3) )",
    "CAST": "((CUdevice)-2)",
    "POINTER": "((CUstream)0x1)",
    "SUM": "PLAIN + 2*BRACKETS",
    "BITS": "(1 << 4) | HEX",
    "ROUND": "ROUND2",
    "ROUND2": "ROUND",
    "TEXT": '"64"',
    "EMPTY": "",
    "FLOAT": "1.5",
    "STRANGE": "1 if 2 else 3",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PLAIN", 64),
        ("HEX", 16),
        ("OCTAL", 8),
        ("LONG", 1),
        ("BRACKETS", 3),
        ("CAST", -2),
        ("POINTER", 1),
        ("SUM", 70),
        ("BITS", 16),
        ("ROUND", None),
        ("TEXT", None),
        ("EMPTY", None),
        ("FLOAT", None),
        ("STRANGE", None),
        ("UNKNOWN", None),
    ],
)
def test_macro_has_this_value(name: str, value: int | None) -> None:
    assert value_of(name, MACROS) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(JSON)
def test_canonical_text_is_the_same_value(value: object) -> None:
    text = dumps_json(value)  # type: ignore[arg-type]

    assert json.loads(text) == value
    assert text.isascii()


def test_canonical_text_does_not_depend_on_the_order_of_keys() -> None:
    assert dumps_json({"b": 1, "a": [1, 2]}) == dumps_json({"a": [1, 2], "b": 1})


def test_short_values_stay_on_one_line_and_long_ones_break() -> None:
    assert dumps_json({"k": ["x" * 10] * 3}).count("\n") == 1
    assert dumps_json({"k": ["x" * 30] * 3}).splitlines()[1:3] == ['  "k": [', f'    "{"x" * 30}",']


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw.update(schema=1),
        lambda raw: raw.pop("newest_driver"),
        lambda raw: raw.pop("functions"),
        lambda raw: raw["functions"][0].pop("kind"),
        lambda raw: raw["functions"][0].update(surprise=1),
        lambda raw: raw["types"][0].update({"is": "riddle"}),
        lambda raw: raw.update(types=7),
    ],
)
def test_damaged_model_is_a_value_error(cuda: ir.Api, damage: object) -> None:
    raw = json.loads(codec.dumps(cuda))
    damage(raw)  # type: ignore[operator]

    with pytest.raises(ValueError, match=r"model|riddle"):
        codec.loads(json.dumps(raw))


@pytest.mark.parametrize(
    ("text", "comment"),
    [
        (b"/** one */\n", "/** one */"),
        (b"/** one */ /** two */\n", "/** two */"),
        (b"/** one */\n__CUDA_DEPRECATED ", "/** one */"),
        (b"/** one */\nint g();\n", ""),
        (b"/** one */\n#define X\n", ""),
        (b"// one\n", ""),
        (b"", ""),
    ],
)
def test_comment_belongs_to_what_follows_it(text: bytes, comment: str) -> None:
    assert comment_before(text + b"int f();", len(text)) == comment


def test_versions_order_by_number() -> None:
    assert sorted(["535.54", "340.108", "535.261.03", "1000.1"], key=version_key) == [
        "340.108",
        "535.54",
        "535.261.03",
        "1000.1",
    ]


def record(size: int, *fields: ir.Field) -> ir.RecordType:
    return ir.RecordType("rec", False, size, 4, fields, ())


def facts(version: str, decl: ir.RecordType | None) -> HeaderFacts:
    return HeaderFacts(version, {}, {}, {}, {"rec": decl} if decl else {}, Shapes({}, {}))


def test_layouts_join_headers_that_agree() -> None:
    small = record(4, ir.Field("a", "int", 0, 4))
    large = record(8, ir.Field("a", "int", 0, 4), ir.Field("b", "int", 4, 4))
    history = [facts("1", small), facts("2", None), facts("3", small), facts("4", large)]

    found = layouts("rec", history)

    assert [(item.first, item.last, item.size) for item in found] == [("1", "3", 4), ("4", "4", 8)]


def test_a_moved_member_is_another_layout() -> None:
    before = record(8, ir.Field("a", "int", 0, 4))
    after = record(8, ir.Field("a", "int", 4, 4))

    assert len(layouts("rec", [facts("1", before), facts("2", after)])) == 2


def test_members_of_anonymous_records_count_from_the_outside() -> None:
    inline = ir.Inline(False, 8, 4, (ir.Field("x", "int", 4, 4),))
    decl = record(16, ir.Field("", inline, 4, 8), ir.Field("named", inline, 8, 8))

    assert [(item.path, item.offset) for item in members(decl.fields)] == [
        ("x", 8),
        ("named.x", 12),
    ]
