"""ci/house_rules.py: each rule catches what it is there for, and the neighbouring case passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RULES = Path(__file__).resolve().parents[2] / "ci" / "house_rules.py"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """An empty git repository; the rules look at untracked files as well."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    return tmp_path


def complaints(repository: Path) -> tuple[int, list[str]]:
    """The status, and every line that the rules print."""
    done = subprocess.run(
        [sys.executable, str(RULES)], cwd=repository, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def write(repository: Path, name: str, content: str | bytes) -> None:
    """Put one file into the repository."""
    path = repository / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


CPP_FUNCTION = "// A.\n%sint F(int a,\n      int b) {\n%s}\n"

BROKEN = {
    "unfinished": ("a.py", '"""A."""\n# TO' + "DO: later\n", 2, "unfinished work"),
    "machine path": ("a.md", "see /wor" + "k/main/x\n", 1, "a path of one machine"),
    "home": ("a.md", "x=/ho" + "me/someone/x\n", 1, "a path of one machine"),
    "licence text": ("a.h", "// Copyright 2024 NVI" + "DIA Corporation\n", 1, "text of"),
    "header": ("inc/cuda.h", "// a\n", 1, "a file of NVIDIA's"),
    "driver": ("x/libcuda.so.550.1", "text\n", 1, "a file of NVIDIA's"),
    "binary": ("a.bin", b"\x7fELF\x02", 1, "binaries"),
    "wheel": ("a.whl", b"PK\x03\x04", 1, "binaries"),
    "picture": ("docs/a.png", b"\x89PNG\r\n", 1, "a picture is in docs/pictures"),
    "large picture": ("docs/pictures/a.png", b"\x89PNG" + bytes(300_000), 1, "at most 300 kB"),
    "include": ("a.cpp", '// A.\n#include "../b.h"\n', 2, "'..'"),
    "inner include": ("a.cpp", "// A.\n#  include <x/../b.h>\n", 2, "'..'"),
    "long comment": ("a.cpp", "// " + "A" * 98 + "\n", 1, "101 columns"),
    "no banner": ("a.cpp", "#include <x>\n", 1, "no banner"),
    "no template banner": ("a.j2", "text\n", 1, "no banner"),
    "long file": ("a.cpp", "// A.\n" * 601, 601, "601 lines"),
    "long template": ("a.j2", "{# A #}\n" * 251, 251, "251 lines"),
    "long function": ("a.py", "def f():\n" + "    x = 1\n" * 60, 1, "f has 61 lines"),
    "long method": ("a.py", "class C:\n  def f(self):\n" + "    x = 1\n" * 60, 2, "f has 61"),
    "long C++ function": ("a.cpp", CPP_FUNCTION % ("", "  a = 1;\n" * 58), 2, "F has 61 lines"),
    "long C++ method": ("a.h", CPP_FUNCTION % ("struct A {\n", "  a;\n" * 58), 3, "F has 61"),
    "header prose": ("lib/api/cuda.json", '{\n"reason": "\\\\param x"}\n', 2, "not a fact"),
    "a paragraph": ("lib/api/nvml.json", '["' + "word " * 40 + '"]\n', 1, "not a fact"),
}


@pytest.mark.parametrize("case", sorted(BROKEN))
def test_a_broken_rule_is_named_with_its_line(repository: Path, case: str) -> None:
    name, content, line, message = BROKEN[case]
    write(repository, name, content)

    status, lines = complaints(repository)

    assert status == 1
    assert len(lines) == 1
    assert lines[0].startswith(f"{name}:{line}: ")
    assert message in lines[0]


ALLOWED = {
    "a word inside another": ("a.py", '"""A."""\nTODOS = HACKY = 1\n'),
    "a system path": ("a.md", "see /usr/lib/x, ./work/x and network/work/x\n"),
    "NVIDIA by name": ("a.md", "NVIDIA's driver\n"),
    "our own header": ("lib/cuda_abi.h", "// A.\n"),
    "a file at the limit": ("a.cpp", "// A.\n" * 600),
    "a template at the limit": ("a.j2", "{# A #}\n" * 250),
    "a function at the limit": ("a.py", "def f():\n" + "    x = 1\n" * 59),
    "a C++ function at the limit": (
        "a.cpp",
        "// A.\nint F(int a,\n      int b) {\n" + "  a = 1;\n" * 57 + "}\n",
    ),
    "a class of many": (
        "a.cpp",
        "// A.\nclass A {\n" + "  int F() {\n    return 1;\n  }\n" * 40 + "};\n",
    ),
    "a long list in C++": ("a.cpp", "// A.\nconstexpr int kA[] = {\n" + "  1,\n" * 100 + "};\n"),
    "a long namespace": ("a.cpp", "// A.\nnamespace {\n" + "int a;\n" * 100 + "}\n"),
    "a long table of data": ("lib/api/symbols/x.txt", "name\n" * 1000),
    "a full line": ("a.cpp", "// " + "A" * 97 + "\n"),
    "the header speaks": ("a.cpp", '#include "a.h"\n'),
    "a picture": ("docs/pictures/a.png", b"\x89PNG\r\n# TO" + b"DO\n"),
    "a fact": ("lib/api/cuda.json", '{"type": "unsigned long long"}\n'),
}


@pytest.mark.parametrize("case", sorted(ALLOWED))
def test_the_neighbouring_case_passes(repository: Path, case: str) -> None:
    name, content = ALLOWED[case]
    write(repository, name, content)
    if case == "the header speaks":
        write(repository, "a.h", "// A.\n")

    assert complaints(repository) == (0, [])


def test_ignored_files_are_nobodys_business(repository: Path) -> None:
    write(repository, ".gitignore", "/build/\n")
    write(repository, "build/a.cpp", "#include <x>\n")

    assert complaints(repository) == (0, [])
