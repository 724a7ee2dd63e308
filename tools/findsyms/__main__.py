"""`findsyms`, installed or as `python -m findsyms` straight from a checkout."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command; ctrl-C ends it without a word, also while its modules load."""
    try:
        from .cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, as a shell reports it


if __name__ == "__main__":
    sys.exit(main())
