"""A list of a driver's names is read alike by findsyms and hookgen, whatever nm's options were."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from findsyms import history
from gen import drivers

RAW = """
libcuda.so.1:
00000000002b7f10 T cuInit
                 U malloc@GLIBC_2.2.5
                 w __gmon_start__
000000000162d4e0 B cudbgIpcFlag
00000000002b8000 W cuMemAlloc_v2@@LIBCUDA_1
"""


@pytest.mark.parametrize("read", [history.listed, drivers.names], ids=["findsyms", "hookgen"])
@pytest.mark.parametrize(
    "text", [RAW, "cuInit\ncudbgIpcFlag\ncuMemAlloc_v2\n"], ids=["nm -D", "names"]
)
def test_a_list_holds_what_the_driver_defines(
    text: str, read: Callable[[str], tuple[str, ...]]
) -> None:
    assert read(text) == ("cuInit", "cudbgIpcFlag", "cuMemAlloc_v2")
