"""`hookgen`; as `python -m gen` where CMake runs it before anything is installed."""

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
