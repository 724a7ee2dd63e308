"""The parts of markers alone, each case a promise.

tests/gputime/marker_cases.cpp, marker_places.cpp, marker_readings.cpp and marker_forecast.cpp, over
a driver of a few lines; and marker_samples.cpp, marker_gaps.cpp, marker_waits.cpp,
marker_spans.cpp, marker_clock.cpp, marker_lengths.cpp, stood_times.cpp and yield_words.cpp, which
are arithmetic alone.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

CASES = [
    "asks_relaxed",
    "callbacks",
    "context_ends",
    "context_ends_in_launch",
    "full_list",
    "full_queue",
    "held_up",
    "left_meanwhile",
    "lost_place",
    "no_room",
    "stream_ends",
]
PLACES = [
    "empty_first",
    "busy_stay",
    "taken_back_once",
    "done_is_reckoned",
    "running_is_paid_for",
    "full_runs_on",
    "steps_pause",
    "waits_for_the_host",
    "meeting_ends",
    "untimed_is_not_told",
    "waiters_tell",
    "host_is_not_asked",
    "recording_is_left_alone",
    "first_launch_is_awaited",
    "gone_is_not_asked",
    "doubt_is_settled_later",
]
SAMPLES = [
    "known",
    "too_few",
    "disturbed",
    "doubtful",
    "old",
    "fast_host",
    "long_lead",
    "alone",
    "forgotten",
    "due",
]
GAPS = [
    "pauses",
    "probes",
    "long_calls",
    "late_calls",
    "late_probes",
    "ended",
    "idle",
    "at_once_or_later",
    "dense",
    "apart",
    "host_bound",
    "long_launches",
    "due",
]
GAPS += ["means", "caught_up", "other_numbers", "single"]
WAITS = [
    "first",
    "spaced",
    "late_for_a_while",
    "late_or_longer",
    "marked_in_another_way",
    "late_and_longer",
    "longer_after_late",
    "changed",
    "never_for_long",
    "other_numbers",
]
SPANS = ["told", "short", "surprised", "late", "teaches", "usual"]
LENGTHS = ["unknown", "alone", "told_apart", "disturbed", "changed", "forgotten"]
LENGTHS += ["same_place", "kinds"]
STOOD = ["never", "cut", "open", "forgotten"]
YIELDS = ["unmapped", "closed", "stands", "given_anew"]
YIELDS += [f"holds{of}" for of in ("", "_of_later_contexts", "_for_good", "_for_long")]
YIELDS += ["holds_of_many_threads"]
CLOCK = ["prompt", "queued", "narrowed", "forgotten", "drifts", "slewed"]
READINGS = [
    "calls_that_block",
    "idle_in_a_call",
    "idle_is_told",
    "late_calls",
    "long_calls",
    "looks_are_late",
]
READINGS += ["found_done", "ran_on", "seemed_idle", "slewed", "surely_later"]
FORECAST = ["runs", "shortest", "expected", "left", "ends"]
PROGRAMS = {
    "marker_cases": CASES,
    "marker_places": PLACES,
    "marker_readings": READINGS,
    "marker_samples": SAMPLES,
    "marker_gaps": GAPS,
    "marker_waits": WAITS,
    "marker_spans": SPANS,
    "marker_clock": CLOCK,
    "marker_lengths": LENGTHS,
    "stood_times": STOOD,
    "yield_words": YIELDS,
    "marker_forecast": FORECAST,
}


@pytest.mark.parametrize(
    ("program", "case"), [(program, case) for program, cases in PROGRAMS.items() for case in cases]
)
def test_markers_keep_their_promise(build: Path, program: str, case: str) -> None:
    command = [str(build / "tests" / program), case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
