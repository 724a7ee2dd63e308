"""The house rules that no other linter knows: sizes, banners, words, paths, and what must stay out.

Reads the files that git tracks (and untracked ones that it does not ignore); prints one
`path:line: message` each and exits 1 when a rule is broken. Owns rules; must not change a file.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

COLUMNS, LINES_LIMIT, TEMPLATE_LIMIT, FUNCTION_LIMIT = 100, 600, 250, 60
# Tables of data, lock files and legal text may be as long as they are.
DATA = ("lib/api/", "ci/locks/", "tests/golden/", "LICENSE")
PICTURES, PICTURE_BYTES = Path("docs/pictures"), 300_000
CODE = (".py", ".c", ".cpp", ".h", ".S", ".j2", ".sh", ".cmake")

# The first line of a definition, of what begins like one and is none, and its name.
CPP_BEGIN = re.compile(r"\s*[\w\[~].*[({,<>\w)]$")
NO_CPP_FUNCTION = re.compile(
    r"\s*(?:(?:inline )?namespace|extern \"C\"|struct|class|union|enum|using|return)\b[^(]*$"
    r"|[^(]*=[^(]*$"
)
CPP_NAME = re.compile(r"([\w:~]+)\(")

# Spelled in pieces, so that this file does not break its own rules.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK|NotImplemented" r"Error)\b")
MACHINE_PATH = re.compile(r"(?:^|[^\w.])/(?:wor" r"k|far" r"m|ro" r"ot|home/\w+)/")
PARENT_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"](?:[^>"]*/)?\.\./')
FOREIGN_TEXT = re.compile(
    r"Copyright.*NVI" r"DIA|NVI" r"DIA.*(?:Copyright|All rights reserved)", re.I
)
FOREIGN_FILE = re.compile(
    r"(?:^|/)(?:cuda|nvml|cudaProfiler|cuda\w*Typedefs|cuda(?:GL|EGL|VDPAU))\.h$"
    r"|libcuda\.so\.\d{3}|libnvidia-ml\.so\.\d{3}"
)
# A fact is short and on one line; a sentence of documentation is neither.
FACT_LENGTH = 160
HEADER_PROSE = re.compile(r"\\(?:param|return|brief|sa|note)\b|/\*|\*/|\n")

Complaint = tuple[int, str]


def main() -> int:
    """Apply every rule to every file; returns the exit status."""
    broken = 0
    for path in _files():
        for line, message in _complaints(path):
            print(f"{path}:{line}: {message}")
            broken += 1
    return 1 if broken else 0


def _files() -> Iterator[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in sorted(filter(None, listing.split("\0"))):
        path = Path(name)
        if path.is_file() and not path.is_symlink():
            yield path


def _complaints(path: Path) -> Iterator[Complaint]:
    if FOREIGN_FILE.search(str(path)):
        yield 1, "a file of NVIDIA's must not be in the repository"
    content = path.read_bytes()
    if content[:4] in (b"\x7fELF", b"!<ar", b"PK\x03\x04"):
        yield 1, "binaries must not be in the repository"
        return
    if content[:4] == b"\x89PNG":
        if path.parent != PICTURES or len(content) > PICTURE_BYTES:
            yield 1, f"a picture is in {PICTURES} and has at most {PICTURE_BYTES // 1000} kB"
        return
    text = content.decode(errors="replace")
    if path.name == "LICENSE":
        return
    rules: list[Callable[[Path, str], Iterator[Complaint]]] = [_lines]
    if str(path).startswith("lib/api/"):
        rules.append(_facts_only)
    if not str(path).startswith(DATA) and path.suffix in CODE:
        rules += [_size, _banner, _columns]
    if path.suffix == ".py":
        rules.append(_function_size)
    if path.suffix in (".c", ".cpp", ".h"):
        rules.append(_cpp_function_size)
    for rule in rules:
        yield from rule(path, text)


def _lines(path: Path, text: str) -> Iterator[Complaint]:
    """Words and paths that do not belong in any line."""
    for number, line in enumerate(text.splitlines(), 1):
        if UNFINISHED.search(line):
            yield number, "unfinished work: finish it, or file it"
        if MACHINE_PATH.search(line):
            yield number, "a path of one machine"
        if FOREIGN_TEXT.search(line):
            yield number, "text of NVIDIA's"
        if path.suffix in CODE and PARENT_INCLUDE.search(line):
            yield number, "an #include through '..' gets around the layers"


def _size(path: Path, text: str) -> Iterator[Complaint]:
    lines = text.count("\n")
    if path.suffix == ".j2" and lines > TEMPLATE_LIMIT:
        yield lines, f"{lines} lines; a template has at most {TEMPLATE_LIMIT}"
    elif lines > LINES_LIMIT:
        yield lines, f"{lines} lines; a file has at most {LINES_LIMIT}"


def _columns(path: Path, text: str) -> Iterator[Complaint]:
    """clang-format leaves comments and strings as they are, and ruff measures Python."""
    if path.suffix in (".c", ".cpp", ".h"):
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > COLUMNS:
                yield number, f"{len(line)} columns; at most {COLUMNS}"


def _banner(path: Path, text: str) -> Iterator[Complaint]:
    """Every file says first what it owns; ruff checks Python, and a header speaks for its pair."""
    openings = {".j2": ("{#",), ".cmake": ("#",), ".sh": ("#!",), ".S": ("//", "#", "/*")}
    expected = openings.get(path.suffix, ("//", "/*"))
    explained = path.suffix == ".py" or (path.suffix == ".cpp" and path.with_suffix(".h").exists())
    if not explained and not text.startswith(expected):
        yield 1, f"no banner: the file must open with a comment ({expected[0]} …)"


def _function_size(path: Path, text: str) -> Iterator[Complaint]:
    for node in ast.walk(ast.parse(text, str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LIMIT:
                yield node.lineno, f"{node.name} has {length} lines; at most {FUNCTION_LIMIT}"


def _cpp_function_size(path: Path, text: str) -> Iterator[Complaint]:
    """clang-format keeps a function's last brace below the column where the function begins."""
    lines = [line.partition(" //")[0].rstrip() for line in text.splitlines()]
    for indent in ("", "  "):
        begin: int | None = None
        for number, line in enumerate(lines, 1):
            if line == indent + "}" and begin is not None:
                if number - begin >= FUNCTION_LIMIT:
                    name = CPP_NAME.search(lines[begin - 1])
                    length = f"{number - begin + 1} lines; at most {FUNCTION_LIMIT}"
                    yield begin, f"{name[1] if name else 'a function'} has {length}"
                begin = None
            elif line == indent + "};" or not line.startswith(indent):
                begin = None if line else begin
            elif CPP_BEGIN.match(line) and line.startswith(indent) and line[len(indent)] != " ":
                begin = None if NO_CPP_FUNCTION.match(line) else number


def _facts_only(path: Path, text: str) -> Iterator[Complaint]:
    """lib/api holds names, types, sizes and our own reasons, never the headers' text."""
    if path.suffix != ".json":
        return
    for value in _strings(json.loads(text)):
        if len(value) > FACT_LENGTH or HEADER_PROSE.search(value):
            line = text[: text.find(json.dumps(value)) + 1].count("\n") + 1
            yield line, f"not a fact but prose: {value[:40]!r} …"


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


if __name__ == "__main__":
    sys.exit(main())
