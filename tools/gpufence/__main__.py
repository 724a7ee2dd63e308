"""`python -m gpufence`: the same command, without an installed script."""

import sys

from .cli import main

sys.exit(main())
