"""What the readers of the dialects share: where they read, where they write, how they refuse.

The same as lib/src/config/reading.h.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from . import sizes
from .limits import Claim, Claims
from .options import Dialect, Setting
from .sizes import Fault
from .sources import ConfigError, Origin, Statement, Statements, System

NO_UUID = bytes(16)
_MOST_CLAIMS = 512


@dataclass(slots=True)
class Hidden:
    """What one source of a dialect takes away from another."""

    vgpu_manager: bool = False
    vcuda_memory: bool = False
    own_cores: bool = False
    hami_cores: bool = False
    alnair: bool = False
    vgpu_rs: bool = False


@dataclass(slots=True)
class Reading:
    """One reading of all sources."""

    system: System
    statements: Statements
    claims: Claims = field(default_factory=Claims)
    hidden: Hidden = field(default_factory=Hidden)

    def text(self, dialect: Dialect, setting: Setting) -> str:
        """The text of a setting without a key; empty when it is not set."""
        return self.statements.text_of(dialect, setting)

    def add(self, claim: Claim) -> None:
        """Append a claim.

        Raises:
            ConfigError: when there are more than the library holds.
        """
        if len(self.claims.claims) == _MOST_CLAIMS:
            raise ConfigError(f"more than {_MOST_CLAIMS} limits are set. Set fewer")
        self.claims.claims.append(claim)

    def refuse(self, statement: Statement, fault: Fault) -> ConfigError:
        """The library's line about the text of a statement."""
        name = sizes.quote(statement.name)
        if statement.origin is Origin.CONFIG_FILE:
            name += f" in {self.statements.config_path[:90]}"
        return ConfigError(sizes.describe(name, statement.text, fault))


def c_text(text: str) -> str:
    """A text as the library keeps it: up to a NUL that a file may hold."""
    return text.split("\0", 1)[0]
