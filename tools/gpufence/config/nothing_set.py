"""Whether it is plain at first sight that nobody set anything here.

`gpufence run` stands in front of every fenced program, and reading every dialect takes longer than
all else that it does: so it asks here first. When in doubt, somebody did. Imports nothing that
takes time to load.
"""

from __future__ import annotations

import os

from .option_table import rows, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Set in every container with a GPU, and nothing by itself.
_HARMLESS = ("IGNORED", "VISIBLE_DEVICES")
_FIRST_PROCESS = "/proc/1/environ"


def nothing_is_set(names: Iterable[str]) -> bool:
    """True where no limit, no setting and no file of any dialect is there.

    Args:
        names: of the environment's variables.
    """
    if any(os.path.lexists(path) for path in files()):
        return False
    # Every name of ours: a typo among them is refused.
    known = ["GPUFENCE"]
    known += [name for name, _, setting, _ in rows() if setting not in _HARMLESS]
    return not any(_is_one_of(name, known) for name in (*names, *_first_process()))


def files() -> list[str]:
    """What limits are read from without being named; a folder stands for the file in it."""
    named, _ = table()
    # Alnair's workspace is not looked at without ALNAIR_ID.
    found = [path for name, path in named.items() if name.endswith("_PATH")]
    return [*found, f"{named['SHARED_FOLDER']}/shm"]


def _is_one_of(name: str, known: list[str]) -> bool:
    return any(name == each or name.startswith(each + "_") for each in known)


def _first_process() -> list[str]:
    """Names that the container's first process has, where they can be read."""
    try:
        with open(_FIRST_PROCESS, "rb") as file:
            content = file.read()
    except OSError:
        return []
    return [os.fsdecode(entry.partition(b"=")[0]) for entry in content.split(b"\0")]
