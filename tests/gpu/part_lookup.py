"""The lookup table: what a real driver answers for every name, against what the headers say."""

from __future__ import annotations

from report import Report
from setup import Setup


def run_part(setup: Setup, report: Report) -> None:
    """Runs the lookup program bare and preloaded and compares both with the model."""
    program = setup.build / "tests" / "lookup_table"
    if not program.exists():
        report.judge("lookup", "table", "skipped", "tests/programs/lookup_table is not built")
        return
    raise NotImplementedError
