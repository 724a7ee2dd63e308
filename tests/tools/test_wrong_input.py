"""Every command with wrong input: at most one line on stderr, a documented status, no traceback.

The commands of gpufence and hookgen are taken from their own lists, so that a new one is driven,
too; what each is given here fits all of them.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from gen.cli import COMMANDS as HOOKGEN_COMMANDS
from gpufence.cli import _COMMANDS as GPUFENCE_TEST_COMMANDS

from . import warm_commands

SECONDS = 60

# Where the usage differs from 2: `run` keeps the low statuses for its program.
USAGE = {"run": 125}
# Where no argument at all takes long, writes, or looks at what this machine has: something short.
SHORT = {
    "extract": ("--no-such-flag",),
    "verify": ("--no-such-flag",),
    "demo": ("--seconds=0",),
    "top": ("--once", "--state-dir=/nonexistent"),
    "status": ("--state-dir=/nonexistent",),
    "prune": ("--state-dir=/nonexistent",),
    "findsyms": ("--driver=580",),
}
# Options that keep a command from what a wrong argument would make it do: nothing is installed.
KEPT = {"install": ("--lib", "/does/not/exist")}
# All that a page of docs/ lists for a command; findsyms' report is a sum of findings.
DOCUMENTED = {
    "gpufence": {0, 1, 2, 3, 4, 5},
    "gpufence run": {0, 125, 126, 127},
    "findsyms": set(range(32)),
    "findsyms check": {0, 1, 2, 5},
    "hookgen": {0, 1, 2, 3, 4, 5},
}


@dataclass(frozen=True, slots=True)
class Command:
    """A command line to which wrong things are added."""

    words: tuple[str, ...]

    @property
    def usage(self) -> int:
        """Its status for wrong usage."""
        return USAGE.get(self.words[-1], 2)

    @property
    def short(self) -> tuple[str, ...]:
        """Arguments with which it ends soon and changes nothing."""
        return SHORT.get(self.words[-1], ())

    @property
    def documented(self) -> set[int]:
        """Its statuses, wrong usage included."""
        named = " ".join(self.words[:2])
        return DOCUMENTED.get(named, DOCUMENTED[self.words[0]]) | {self.usage}

    def __str__(self) -> str:
        return "-".join(self.words)


CDI = ("generate", "list", "validate")
COMMANDS = [
    *(Command(("gpufence", name)) for name in GPUFENCE_TEST_COMMANDS if name != "cdi"),
    *(Command(("gpufence", "cdi", verb)) for verb in CDI),
    Command(("findsyms",)),
    Command(("findsyms", "check")),
    *(Command(("hookgen", name)) for name in HOOKGEN_COMMANDS),
]
every_command = pytest.mark.parametrize("command", COMMANDS, ids=str)


def start(
    command: Command,
    *arguments: str | bytes | Path,
    shell: str = "",
    cwd: Path | None = None,
    **env: str | bytes,
) -> subprocess.CompletedProcess[bytes]:
    """Run it with a bare environment; `shell` is what a shell does to its streams."""
    module = {"hookgen": "gen"}.get(command.words[0], command.words[0])
    words = (*command.words[1:], *KEPT.get(command.words[-1], ()), *arguments)
    if not shell and "LC_ALL" not in env:
        return warm_commands.run(module, words, {**warm_commands.BARE, **env}, cwd=cwd)
    streams = ["sh", "-c", f'exec "$@" {shell}', "sh"]
    return subprocess.run(
        [*streams, sys.executable, "-m", module, *words],
        cwd=cwd,
        env={**warm_commands.BARE, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )


def judge(command: Command, done: subprocess.CompletedProcess[bytes], lines: int = 1) -> None:
    """The promise of this file."""
    assert b"Traceback" not in done.stderr, done.stderr.decode(errors="replace")
    assert b"Exception ignored" not in done.stderr
    assert done.stderr.count(b"\n") <= lines, done.stderr.decode(errors="replace")
    assert done.returncode in command.documented, (done.returncode, done.stderr)


@every_command
@pytest.mark.parametrize(
    "argument", ["--no-such-flag", "--json=5", "--=", "-\u00fc"], ids=["flag", "value", "=", "-ü"]
)
def test_an_unknown_option_is_wrong_usage(command: Command, argument: str) -> None:
    if command.words[-1] == "run" and not argument.startswith("--no"):
        pytest.skip("what `run` does not know may be the program's")

    done = start(command, argument)

    judge(command, done)
    assert (done.returncode, done.stdout) == (command.usage, b"")
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(command.words[0].encode())


@every_command
@pytest.mark.parametrize(
    "argument",
    [b"\xff\xfe/x", b"\xff", b"/nonexistent/x", b"/", b"9" * 400, b"-9", b"", b"a\nb", b"\x1b[31m"],
    ids=["bytes", "byte", "missing", "folder", "huge", "negative", "empty", "newline", "escape"],
)
def test_a_positional_argument_may_be_anything(command: Command, argument: bytes) -> None:
    done = start(command, argument)

    judge(command, done)


@every_command
def test_a_broken_file_may_be_named(command: Command, tmp_path: Path) -> None:
    for name, content in (("a.json", b"{"), ("b.so", b"\x7fELF"), ("c.yaml", b"a: &b"), ("d", b"")):
        (tmp_path / name).write_bytes(content)

        judge(command, start(command, tmp_path / name))


@pytest.mark.parametrize(
    "command", [each for each in COMMANDS if each.words[0] == "gpufence"], ids=str
)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("GPUFENCE_MEMORY_LIMIT", b"\xff\xfe"),
        ("CUDA_DEVICE_SM_LIMIT", b"9" * 400),
        ("TENSOR_FUSION_CUDA_MEM_LIMIT", b"{"),
        ("GPUFENCE_CONFIG", b"/"),
        ("GPUFENCE_STATE_DIR", b"/\n\xff"),
    ],
)
def test_the_environment_may_hold_anything(command: Command, name: str, text: bytes) -> None:
    arguments = ("--", "true") if command.words[-1] == "run" else command.short

    done = start(command, *arguments, **{name: text})

    judge(command, done)


@every_command
def test_neither_home_nor_a_locale_nor_a_folder_is_needed(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    folder.chmod(0o555)
    plain = start(command, *command.short, cwd=tmp_path)

    without = start(
        command,
        *command.short,
        cwd=folder,
        HOME="/dev/null/home",  # root could make any other folder
        LC_ALL="C",
        PYTHONIOENCODING="ascii",
        TERM="dumb",
    )

    judge(command, plain)
    judge(command, without)
    assert without.returncode == plain.returncode


@every_command
@pytest.mark.parametrize(
    "shell",
    [">&-", "2>&-", ">&- 2>&-", "<&-", ">/dev/full", "2>/dev/full"],
    ids=["no stdout", "no stderr", "neither", "no stdin", "full stdout", "full stderr"],
)
def test_streams_may_be_closed_or_full(command: Command, shell: str) -> None:
    judge(command, start(command, *command.short, shell=shell))


@every_command
@pytest.mark.parametrize("shell", [">&-", ">/dev/full"], ids=["no stdout", "full stdout"])
def test_help_may_find_no_reader(command: Command, shell: str) -> None:
    judge(command, start(command, "--help", shell=shell), lines=1000)


@pytest.mark.parametrize("name", ["config", "doctor"])
def test_what_could_not_be_written_is_told(name: str) -> None:
    command = Command(("gpufence", name))

    full = start(command, shell=">/dev/full")
    closed = start(command, shell=">&-")

    for done in (full, closed):
        assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
        assert b"not written" in done.stderr


@pytest.mark.parametrize("tool", ["gpufence", "hookgen"])
@pytest.mark.parametrize("words", [["nope"], ["\udcff"], ["--nope"], ["", "run"]], ids=repr)
def test_a_command_that_is_none_is_wrong_usage(tool: str, words: list[str]) -> None:
    command = Command((tool,))

    done = start(command, *(word.encode(errors="surrogateescape") for word in words))

    judge(command, done)
    assert (done.returncode, done.stdout) == (2, b"")


INTERRUPTED = """
import runpy, sys
class Finder:
    def find_spec(self, name, *_):
        if name.endswith(".cli"):
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
runpy.run_module(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize("module", ["findsyms", "gen"])
def test_ctrl_c_while_modules_load_leaves_no_traceback(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module],
        env=warm_commands.BARE,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
