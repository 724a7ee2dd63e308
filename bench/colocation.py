"""What sharing one GPU costs unlike tenants: `python3 bench/colocation.py [measure] ...`.

measure (the default) runs scenes, table and plot show what it wrote, and work is how it starts its
programs. See docs/benchmarks.md, or `--help` of each.

Exit status: 0 done, 1 a promise was broken (with --judge), 2 wrong usage, 3 nothing measured.
"""

from __future__ import annotations

import sys

# Beside this file lie other benches, whose names a framework's own imports must not meet.
sys.path.append(sys.path.pop(0))

from colocation.command import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
