"""The two files a GPU run leaves behind, written again after every step.

report.json holds everything; summary.txt one line per judgement, for people. Must not know how any
judgement was reached.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARKS = {"same": "ok", "different": "DIFFERENT", "failed": "FAILED", "skipped": "skipped"}


@dataclass(slots=True)
class Report:
    """Collects verdicts and details; every call is on disk before it returns.

    A verdict is one of "same" (or otherwise right), "different", "failed" and "skipped".
    """

    folder: Path
    details: dict[str, Any] = field(default_factory=lambda: {"schema": 1, "parts": {}})
    lines: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def note(self, text: str) -> None:
        """Adds a plain line to the summary and shows it."""
        self.lines.append(text)
        print(f"[{time.monotonic() - self.started:6.1f} s] {text}", flush=True)
        self.save()

    def judge(self, part: str, name: str, verdict: str, text: str, **detail: Any) -> None:  # noqa: ANN401
        """Records one verdict with its details, which must be JSON values."""
        self.counts[verdict] = self.counts.get(verdict, 0) + 1
        entry = {"verdict": verdict, "text": text, **detail}
        self.details["parts"].setdefault(part, {})[name] = entry
        self.note(f"{part}/{name}: {MARKS[verdict]}{': ' + text if text else ''}")

    def save(self) -> None:
        """Writes both files."""
        self.details["seconds"] = round(time.monotonic() - self.started, 1)
        self.details["counts"] = self.counts
        body = json.dumps(self.details, indent=1, sort_keys=True)
        (self.folder / "report.json").write_text(body + "\n", encoding="utf-8")
        totals = ", ".join(f"{count} {MARKS[name]}" for name, count in sorted(self.counts.items()))
        text = "\n".join([*self.lines, f"total: {totals or 'nothing ran'}"])
        (self.folder / "summary.txt").write_text(text + "\n", encoding="utf-8")
