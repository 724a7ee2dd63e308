"""Each claim against the bare driver, in one run: `python3 bench/scoreboard.py [--real] ...`.

Measures the same figures bare, under MPS, with our library and with other limiters whose libraries
are given by path, and prints each with its ratio to the bare driver's. The figures follow
GPU-Virt-Bench (arXiv 2512.22125), as far as one GPU and a preloaded library can be asked for them;
docs/benchmarks.md says where its method is not followed, and why.

Exit status: 0 measured, 2 wrong usage, 3 nothing measured.
"""

from __future__ import annotations

import sys

# Beside this file lie other benches, whose names a framework's own imports must not meet.
sys.path.append(sys.path.pop(0))

from scoreboard.command import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
