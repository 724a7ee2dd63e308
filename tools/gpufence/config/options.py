"""Every variable that limits come from, and how a name is found among them."""

from __future__ import annotations

from dataclasses import dataclass

from .option_table import table

_OWN_PREFIX = "GPUFENCE_"


@dataclass(frozen=True, slots=True)
class Option:
    """One variable.

    `dialect` is what people call it, `keys` what may follow the name behind a '_': "", "<i>" or
    "<i>, <uuid>", `text` what may be written.
    """

    name: str
    dialect: str
    setting: str
    keys: str
    text: str
    meaning: str


OPTIONS: tuple[Option, ...] = tuple(
    Option(name, dialect.title, setting, keys, text, meaning)
    for dialect in table()[1]
    for names, (keys, setting, text), meaning in dialect.rows
    for name in names
)


def find(name: str) -> tuple[Option, str] | None:
    """The option that a variable spells, and the key behind it: "", or '_' and what follows."""
    for option in OPTIONS:
        if name.startswith(option.name):
            key = name[len(option.name) :]
            if not key or (option.keys and key[0] == "_"):
                return option, key
    return None


def file_key(option: Option) -> str | None:
    """How the config file spells an option of ours; None: it has no place there."""
    if not option.name.startswith(_OWN_PREFIX) or option.setting in ("CONFIG_FILE", "DISABLE"):
        return None
    return option.name[len(_OWN_PREFIX) :].lower()
