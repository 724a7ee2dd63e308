"""The bench's own modules, which are no part of the package."""

from __future__ import annotations

import sys
from pathlib import Path

# Behind everything else: other benches beside it have names such as `findsyms`.
sys.path.append(str(Path(__file__).resolve().parents[3] / "bench"))
