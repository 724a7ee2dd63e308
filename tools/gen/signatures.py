"""One line a symbol with a hash of its signature: what a reviewer sees change, and a test compares.

Owns the text of tests/golden/signatures.txt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from .ir import Api, Function


def listing(models: Iterable[Api]) -> str:
    """`name hash` for every function, alias and untyped export, in byte order.

    The hash is the first 16 hex digits of SHA-256 over the prototype without parameter names, over
    `= target` for an alias, and over the empty text for an export that has no prototype.
    """
    lines = []
    for api in models:
        lines += [f"{item.name} {_digest(_prototype(item))}" for item in api.functions]
        lines += [f"{item.name} {_digest('= ' + item.target)}" for item in api.aliases]
        lines += [f"{item.name} {_digest('')}" for item in api.untyped]
    return "".join(line + "\n" for line in sorted(lines))


def _prototype(function: Function) -> str:
    return f"{function.returns} ({', '.join(param.type for param in function.params)})"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
