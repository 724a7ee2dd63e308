"""The list of a new driver changes the model by what is new in it, and by nothing else."""

from __future__ import annotations

import difflib

from gen import codec, ir, join
from gen.drivers import Exports
from gen.facts import Touched

from .conftest import Reader

RESULTS = "NVML_SUCCESS, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_FUNCTION_NOT_FOUND"
NAMES = [f"nvmlGet{letter}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
HEADER = "".join(
    [
        f"typedef enum nvmlReturn_enum {{ {RESULTS} }} nvmlReturn_t;\n",
        *(f"nvmlReturn_t {name}(unsigned int *value);\n" for name in NAMES),
    ]
)
KNOWN = frozenset(NAMES)
OLD = Exports("580.159.04", "x86_64", KNOWN)


def model(read: Reader, *exports: Exports) -> ir.Api:
    inputs = join.Inputs(Touched((), (), ()), exports, ())
    return join.build("nvml", [read(HEADER, "nvmlReturn_t")], inputs, ())


def changed_lines(old: ir.Api, new: ir.Api) -> list[str]:
    texts = [codec.dumps(api).splitlines() for api in (old, new)]
    difference = list(difflib.unified_diff(*texts, "", "", "", "", 0, ""))
    return [line for line in difference[2:] if line[0] in "+-"]


def test_three_new_names_of_a_new_driver_change_few_lines(read_invented: Reader) -> None:
    names = KNOWN | {"nvmlNewX", "nvmlNewY", "nvmlNewZ"}
    old = model(read_invented, OLD)
    new = model(read_invented, OLD, Exports("610.43.02", "x86_64", names))

    changed = changed_lines(old, new)

    # Seven lines for each of them, the brackets of their list, and the driver.
    assert len(changed) <= 3 * 7 + 5, "\n".join(changed)
    assert '+  "newest_driver": "610.43.02",' in changed
    assert all(each.drivers == ir.Span("580.159.04", "610.43.02") for each in new.functions)
    assert codec.loads(codec.dumps(new)) == new


def test_a_name_that_a_new_driver_lost_keeps_its_last_driver(read_invented: Reader) -> None:
    # By number, not by text: 1000 is newer than 580.
    new = model(read_invented, OLD, Exports("1000.1.1", "x86_64", KNOWN - {"nvmlGetQ"}))

    changed = changed_lines(model(read_invented, OLD), new)
    again = {each.name: each.drivers for each in codec.loads(codec.dumps(new)).functions}

    assert len(changed) <= 4, "\n".join(changed)
    assert again["nvmlGetQ"] == ir.Span("580.159.04", "580.159.04")
    assert again["nvmlGetR"] == ir.Span("580.159.04", "1000.1.1")
    assert codec.loads(codec.dumps(new)) == new


def test_a_model_of_forecasts_alone_has_no_newest_driver(read_invented: Reader) -> None:
    api = model(read_invented, Exports("580.159.04", "x86_64", frozenset()))

    assert codec.loads(codec.dumps(api)) == api
    assert all(each.drivers is None for each in api.functions)
