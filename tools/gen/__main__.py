"""`python -m gen`, as CMake runs it before anything is installed."""

import sys

from .cli import main

sys.exit(main())
