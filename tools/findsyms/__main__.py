"""`python -m findsyms`: the tool straight from a checkout, before anything is installed."""

from __future__ import annotations

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
