"""How a header becomes facts: awkward C shapes, and every way a parse must fail instead of lie."""

from __future__ import annotations

import importlib.metadata
import sys
import types
from collections.abc import Callable

import pytest
from gen import headers, ir, stubs
from gen.errors import HookgenError
from gen.facts import HeaderFacts, HeaderSet, Touched

Reader = Callable[..., HeaderFacts]
NOTHING = Touched((), (), ())


def shape(facts: HeaderFacts, name: str) -> tuple[str, ...]:
    return facts.functions[name].shape


def test_size_t_stays_size_t(read_invented: Reader) -> None:
    facts = read_invented("#include <stddef.h>\nint f(size_t n, const size_t *p);")

    assert shape(facts, "f") == ("int", "size_t", "const size_t *")


def test_missing_stddef_stops_the_parse(
    read_invented: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PyPI's libclang has no builtin headers: one error, 190 wrong signatures, and a "success".
    without = {name: text for name, text in stubs.STUBS.items() if name != "stddef.h"}
    monkeypatch.setattr(headers, "STUBS", without)

    with pytest.raises(HookgenError, match=r"'stddef\.h' file not found"):
        read_invented("#include <stddef.h>\nint f(size_t n);")


def test_missing_header_of_the_set_stops_the_parse() -> None:
    with pytest.raises(HookgenError, match=r"'cuda\.h' file not found"):
        headers.read(HeaderSet("1.0", {"nvml.h": b""}), "cuda", NOTHING)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("int f(size_t n);", "unknown type name 'size_t'"),
        ("int f(int n) int g;", "expected ';'"),
        ("int f(int n);\nlong f(int n);", "conflicting types for 'f'"),
        ("#error not this way\n", "not this way"),
    ],
)
def test_any_error_diagnostic_stops_the_parse(
    read_invented: Reader, text: str, complaint: str
) -> None:
    with pytest.raises(HookgenError, match=complaint) as caught:
        read_invented(text)

    assert "headers 1.0 have an error at headers/nvml.h:" in str(caught.value)


def test_static_functions_are_nobodys_export(read_invented: Reader) -> None:
    # cuda.h has one in per-thread mode; no driver exports it.
    facts = read_invented("static inline int g(void) { return 0; }\nint f(void);")

    assert list(facts.functions) == ["f"]


def test_stub_declarations_are_no_functions(read_invented: Reader) -> None:
    facts = read_invented("#include <stdlib.h>\n#include <vdpau/vdpau.h>\nint f(void);")

    assert list(facts.functions) == ["f"]


def test_macros_are_the_object_like_ones_on_one_line(read_invented: Reader) -> None:
    facts = read_invented(
        "#define OBJECT (1 << \\\n  2) // three\n#define CALL(x) ((x) + 1)\n#define EMPTY\n"
    )

    assert dict(facts.macros) == {"OBJECT": "(1 << 2)", "EMPTY": ""}


def test_awkward_parameters_are_spelled_one_way(read_invented: Reader) -> None:
    facts = read_invented(
        "typedef int (*cb_t)(void *user, const char *const *names);\n"
        "typedef struct ctx_st *ctx_t;\n"
        "int f(const char *const *a, unsigned char b[8], const int c[], ctx_t *d, cb_t e,\n"
        "      const unsigned long long g, void *const h, float p, double q);\n"
        "int none();\n"
        "int nothing(void);\n"
    )

    assert shape(facts, "f") == (
        "int",
        "const char *const *",
        "unsigned char *",
        "const int *",
        "ctx_t *",
        "cb_t",
        "unsigned long long",  # a const on the parameter itself is nobody's business
        "void *",
        "float",
        "double",
    )
    assert shape(facts, "none") == shape(facts, "nothing") == ("int",)
    assert facts.types["cb_t"] == ir.FunctionType("cb_t", "int", ("void *", "const char *const *"))
    assert facts.types["ctx_t"] == ir.HandleType("ctx_t", "ctx_st")


def test_anonymous_members_are_spelled_inline_with_their_offsets(read_invented: Reader) -> None:
    facts = read_invented(
        "typedef struct rec_st {\n"
        "  char tag;\n"
        "  union { int a; struct { char x; long long y; } b; };\n"
        "  unsigned int flag : 1;\n"
        "  unsigned int rest : 31;\n"
        "  short grid[2][3];\n"
        "} rec;\n"
        "int f(rec *r);\n",
        "rec",
    )

    record = facts.types["rec"]
    assert isinstance(record, ir.RecordType)
    assert (record.size, record.align) == (40, 8)
    tag, anonymous, flag, rest, grid = record.fields
    assert tag == ir.Field("tag", "char", 0, 1)
    assert isinstance(anonymous.type, ir.Inline)
    assert (anonymous.name, anonymous.offset, anonymous.type.union) == ("", 8, True)
    inner = anonymous.type.fields[1]
    assert inner.name == "b"
    assert isinstance(inner.type, ir.Inline)
    assert [(item.name, item.offset) for item in inner.type.fields] == [("x", 0), ("y", 8)]
    assert (flag.bits, rest.bits) == (1, 31)
    assert (grid.type, grid.count, grid.dims, grid.size) == ("short", 6, (2, 3), 12)


def test_untouched_record_has_no_fields(read_invented: Reader) -> None:
    facts = read_invented("typedef struct rec_st { int a; } rec;\nint f(rec *r);")

    assert facts.types["rec"] == ir.RecordType("rec", False, 4, 4, (), ())


def test_first_typedef_names_a_record_and_later_ones_are_aliases(read_invented: Reader) -> None:
    facts = read_invented(
        "typedef struct rec_st { int a; } rec_v1;\ntypedef rec_v1 rec;\nint f(rec *r);"
    )

    assert shape(facts, "f") == ("int", "rec *")
    assert facts.types["rec"] == ir.AliasType("rec", "rec_v1")


def test_enum_has_its_underlying_type_and_touched_constants(read_invented: Reader) -> None:
    text = "typedef enum e_en { E_LOW = -1, E_HIGH = 7 } e_t;\nint f(e_t e);"

    touched, untouched = read_invented(text, "e_t"), read_invented(text)

    constants = (ir.Constant("E_LOW", -1), ir.Constant("E_HIGH", 7))
    assert touched.types["e_t"] == ir.EnumType("e_t", "int", constants)
    assert untouched.types["e_t"] == ir.EnumType("e_t", "int", ())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("int f(int (*call)(void));", "a function pointer without a typedef"),
        ("struct s { int a; };\nint f(struct s *p);", "without a typedef"),
        ("int f(__int128 wide);", "kind INT128"),
    ],
)
def test_type_outside_the_model_is_refused_not_guessed(
    read_invented: Reader, text: str, complaint: str
) -> None:
    with pytest.raises(HookgenError, match=complaint):
        read_invented(text)


def test_directions_come_from_const_and_from_the_comment(read_invented: Reader) -> None:
    facts = read_invented(
        "typedef struct { unsigned int version; int x; } info_t;\n"
        "/**\n"
        " * @param by     The identifier\n"
        " * @param ro     Reference in which to return nothing\n"
        " * @param out    Reference in which to return the count\n"
        " * @param both   Reference in which to provide a size, and to return the number\n"
        " * @param quiet  An array\n"
        " * @param info   Returned information\n"
        " */\n"
        "int f(int by, const int *ro, int *out, int *both, int *quiet, info_t *info);\n"
    )

    assert [param.direction for param in facts.functions["f"].params] == [
        "in",
        "in",
        "out",
        "inout",
        "inout",
        "inout",  # the callee reads version first
    ]


def test_comment_of_another_function_says_nothing(read_invented: Reader) -> None:
    facts = read_invented(
        "/** \\param p - Returned value */\nint f(int *p);\nint g(int *p);\n"
        "/** \\param p - Returned value */\n#define H h_v2\nint h(int *p);\n"
    )

    found = {name: item.params[0].direction for name, item in facts.functions.items()}
    assert found == {"f": "out", "g": "inout", "h": "inout"}


def test_variant_without_a_comment_learns_from_the_one_that_has_it(
    read_invented: Reader,
) -> None:
    facts = read_invented(
        "typedef struct { unsigned int version; } info_t;\n"
        "int f(unsigned *p, int *q);\n"
        "/** \\param p - Returned value\n * \\param q - A value */\nint f_v2(int *p, int *q);\n"
        "int f_v3(info_t *p, int *q);\n"
    )

    found = {name: item.params[0].direction for name, item in facts.functions.items()}
    assert found == {"f": "out", "f_v2": "out", "f_v3": "inout"}


def test_deprecation_is_read_from_the_default_mode(read_invented: Reader) -> None:
    facts = read_invented(
        "#ifdef NVML_NO_UNVERSIONED_FUNC_DEFS\n"
        "#define OLD\nint hidden(void);\n#else\n#define OLD __attribute__((deprecated))\n#endif\n"
        "OLD int f(void);\nint g(void);\n"
    )

    assert {name: item.deprecated for name, item in facts.functions.items()} == {
        "hidden": False,
        "f": True,
        "g": False,
    }


def fake_clang(error: Exception) -> types.ModuleType:
    """A clang.cindex whose library cannot be loaded."""

    class Broken:
        @property
        def lib(self) -> object:
            raise error

    package, cindex = types.ModuleType("clang"), types.ModuleType("clang.cindex")
    cindex.conf = Broken()  # type: ignore[attr-defined]
    package.cindex = cindex  # type: ignore[attr-defined]
    return package


def test_bindings_beside_libclang_are_named(
    read_invented: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = fake_clang(AttributeError("undefined symbol: clang_getOffsetOfBase"))
    monkeypatch.setitem(sys.modules, "clang", broken)
    monkeypatch.setitem(sys.modules, "clang.cindex", broken.cindex)
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "19.1.7")

    with pytest.raises(HookgenError, match=r"package 'clang' 19\.1\.7 .*`pip uninstall clang"):
        read_invented("int f(void);")


def test_missing_libclang_is_one_clear_error(
    read_invented: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "clang", None)

    with pytest.raises(HookgenError, match="pip install libclang"):
        read_invented("int f(void);")
