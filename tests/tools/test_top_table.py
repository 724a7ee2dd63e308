"""The lines of `gpufence top`: everything fits, in the order that was chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpufence.config.terms import Priority
from gpufence.machine import gpus
from gpufence.machine.people import Pod
from gpufence.state.region import Activity
from gpufence.state.time_file import Shares
from gpufence.top import table
from gpufence.top.history import History
from gpufence.top.order import Sort
from gpufence.top.table import Choice, Line
from gpufence.top.watch import Container, Gpu, Look, Process

GIB = 1 << 30
MEMORY = ("2.0GiB", "4.0GiB", "50%")
READING = gpus.Reading(0, "GPU-0", "NVIDIA H200", 140 * GIB, 35 * GIB, 0.5, 41)


def process(pid: int, used: int = GIB, **more: object) -> Process:
    made = Process(pid, False, "ada", "train", True, used, 0, 0, 4 * GIB, Activity())
    return replace(made, **more)


def container(name: str = "web", **more: object) -> Container:
    made = Container(
        name=name,
        pod=Pod(),
        alive=True,
        memory_known=True,
        limit_bytes=4 * GIB,
        used_bytes=2 * GIB,
        orphan_bytes=0,
        oversold=False,
        unified_bytes=0,
        share_bytes=None,
        shares=Shares(30_000, 60_000),
        charged_ns=0,
        has_turn=False,
        activity=Activity(),
        processes=(process(1),),
    )
    return replace(made, **more)


def look(*containers: Container, seconds: float = 0.0) -> Look:
    return Look(int(seconds * 1e9), (Gpu("GPU-0", READING, containers),), ())


def texts(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def headings(now: Look, history: History, width: int = 150) -> list[str]:
    return "".join(text for text, _ in table.heading(now, history, width)).split()[3:]


def waited(*held: tuple[int, int], **more: object) -> tuple[Look, History]:
    """One look a second, with so many launches held for so many nanoseconds by then."""
    history = History()
    for second, (launches, held_ns) in enumerate(held):
        activity = Activity(launches_held=launches, held_ns=held_ns)
        now = look(container(activity=activity, **more), seconds=second)
        history.add(now)
    return now, history


def shown(now: Look, choice: Choice | None = None, width: int = 130) -> list[str]:
    return texts(table.body(now, History(), choice or Choice(), width))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1.0KiB"),
        (99 * GIB, "99.0GiB"),
        (140 * GIB, "140GiB"),
        (999 * GIB, "999GiB"),
        (1000 * GIB, "1.0TiB"),
        (2**64 - 1, "damaged"),
    ],
)
def test_bytes_are_told_in_a_unit_that_fits(count: int, text: str) -> None:
    assert table.size(count) == text
    assert len(text) <= 8


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (123456, "123k"), (2**64 - 1, "18447P")],
)
def test_counts_are_told_in_six_characters(count: int, text: str) -> None:
    assert table.number(count) == text


def test_a_trend_is_as_high_as_its_share_of_the_limit() -> None:
    assert table.spark((0.0, 0.15, 0.3, 0.9), top=0.3, width=6) == "  ▁▅██"
    assert table.spark((0.1,) * 9, top=0.3, width=4) == "▃▃▃▃"
    assert table.spark((0.3,), top=0.3, width=2, bars=table.ASCII_BARS) == " #"


@pytest.mark.parametrize("width", [1, 10, 20, 40, 63, 80, 130, 300])
def test_every_line_fits_every_terminal(width: int) -> None:
    odd = container("x" * 200, used_bytes=2**64 - 1, limit_bytes=1)
    strange = process(4_294_967_295, 2**64 - 1, user="u" * 40, command="c" * 40, foreign=True)
    history = History()
    for second in (0, 1):
        activity = Activity(2**64 - 1, 5, second * (2**64 - 1))
        odd = replace(odd, activity=activity, priority=Priority.HIGH)
        now = look(odd, container(processes=(strange,)), seconds=second)
        history.add(now)

    lines = [table.heading(now, history, width), *table.body(now, history, Choice(), width)]

    assert max(len("".join(text for text, _ in line)) for line in lines) <= max(width, 18)


def test_a_narrow_terminal_keeps_what_matters_most() -> None:
    now = look(container(oversold=True, activity=Activity(refusals=1, launches_held=1)))
    heading = headings(now, History(), 80)

    assert [word for word in ("USED", "LIMIT", "CORES", "TREND") if word in heading] == [
        "USED",
        "LIMIT",
        "CORES",
    ]
    assert headings(now, History(), 52) == ["USED", "LIMIT", "MEM", "CORES"]


@pytest.mark.parametrize(
    ("more", "titles"),
    [
        ({"shares": None}, []),
        ({"shares": None, "shares_known": False}, ["CORES", "CORE-LIMIT", "TREND"]),
        ({}, ["CORES", "CORE-LIMIT", "TREND"]),
        ({"shares": None, "oversold": True}, ["UNIFIED"]),
        ({"shares": None, "activity": Activity(refusals=1)}, ["REFUSED"]),
        ({"shares": None, "activity": Activity(launches_held=1)}, ["HELD/S", "HELD"]),
    ],
)
def test_columns_that_have_nothing_are_hidden(more: dict[str, object], titles: list[str]) -> None:
    told = headings(look(container(**more), container("other", shares=None)), History())

    assert told == ["USER", "USED", "LIMIT", "MEM", *titles]


def test_gpu_container_and_process_are_told() -> None:
    history = History()
    for second in (0, 1):
        now = look(container(charged_ns=second * 240_000_000, has_turn=True), seconds=second)
        history.add(now)

    gpu, row, process_row = texts(table.body(now, history, Choice(), 130))

    assert gpu == "GPU 0  NVIDIA H200  35.0GiB of 140GiB  busy 50%  41 C  GPU-0"
    assert row.split() == ["web", "*", *MEMORY, "24.0%", "30%-60%", "▄"]
    assert process_row.split() == ["1", "train", "ada", "1.0GiB", "4.0GiB", "25%"]


def test_a_frozen_container_is_told_as_such() -> None:
    _, row, _ = texts(table.body(look(container(frozen=True)), History(), Choice(), 130))

    assert row.split()[:2] == ["web", "frozen"]


def test_waiting_is_told_as_a_part_of_the_time_and_may_pass_all_of_it() -> None:
    now, history = waited((1, 10**9), (5, 10**9 + 250_000_000))
    assert headings(now, history)[6:] == ["TREND", "WAIT", "HELD/S", "HELD"]
    assert texts(table.body(now, history, Choice(), 130))[1].split()[-3:] == ["25%", "4", "5"]

    rates = history.rates("GPU-0", "web")
    assert rates is not None
    assert (rates.wait, rates.wait_mean_ns) == (0.25, 62_500_000)

    now, history = waited((0, 0), (3, 3 * 10**9))  # three threads, all the time
    assert texts(table.body(now, history, Choice(), 130))[1].split()[-3] == "300%"


@pytest.mark.parametrize("held", [((0, 0),), ((9, 10**9),), ((9, 10**9), (9, 10**9))])
def test_nobody_who_waits_takes_no_column(held: tuple[tuple[int, int], ...]) -> None:
    now, history = waited(*held)

    assert "WAIT" not in headings(now, history)
    assert "0%" not in texts(table.body(now, history, Choice(), 130))[1].split()


def test_who_waited_once_keeps_the_column_where_it_is() -> None:
    now, history = waited((0, 0), (1, 10**8), (1, 10**8))
    assert "WAIT" in headings(now, history)
    assert texts(table.body(now, history, Choice(), 130))[1].split()[-3] == "0%"

    gone = look(seconds=9)
    history.add(gone)
    assert "WAIT" not in headings(gone, history)


def test_a_region_that_began_anew_waited_not_at_all() -> None:
    _, history = waited((9, 10**9), (0, 0))

    rates = history.rates("GPU-0", "web")
    assert rates is not None
    assert (rates.wait, rates.wait_mean_ns) == (0.0, None)


@pytest.mark.parametrize(
    ("priorities", "words"),
    [
        ((None, None), None),
        ((Priority.NORMAL, None), None),
        ((Priority.NORMAL, Priority.HIGH), ["normal", "high"]),
        ((Priority.LOW, Priority.NORMAL), ["low", "normal"]),
        ((Priority.LOW, None), ["low", ""]),
    ],
)
def test_priorities_are_told_where_one_is_not_normal(
    priorities: tuple[Priority | None, ...], words: list[str] | None
) -> None:
    now = look(*(container(f"web{at}", priority=each) for at, each in enumerate(priorities)))
    titles = headings(now, History())
    rows = shown(now, Choice(sort=Sort.NAME, processes=False), 150)[1:]

    assert ("PRIO" in titles) == (words is not None)
    if words is not None:
        assert titles[titles.index("PRIO") - 1] == "CORE-LIMIT"
        for row, word in zip(rows, words, strict=True):
            assert row.split("30%-60%")[1].split() == ([word] if word else [])


def test_what_is_not_known_is_left_blank() -> None:
    stranger = container(
        "#1234", memory_known=False, limit_bytes=None, used_bytes=0, shares=None, charged_ns=None
    )
    member = process(7, foreign=True, command=None)
    member = replace(member, used_bytes=None, limit_bytes=None)

    _, row, process_row = shown(look(replace(stranger, processes=(member,))))

    assert row.split() == ["#1234"]
    assert process_row.split() == ["7?", "ada"]


def test_what_lies_on_the_host_is_told_apart() -> None:
    spilled = process(1, used=3 * GIB, unified_bytes=GIB)
    now = look(container(oversold=True, unified_bytes=GIB, processes=(spilled,)))

    _, row, process_row = shown(now)

    assert row.split()[:5] == ["web", *MEMORY, "1.0GiB"]
    assert process_row.split() == [
        "1",
        "train",
        "ada",
        "3.0GiB",
        "4.0GiB",
        "75%",
        "1.0GiB",
    ]


@pytest.mark.parametrize(
    ("name", "shown_as"), [("nsf0000153-2c-0123456789abcdef", "web"), ("train", "train")]
)
def test_an_engines_name_stands_for_a_container_that_nobody_named(name: str, shown_as: str) -> None:
    found = container(name=name, pod=Pod(container="web"))

    assert shown(look(found))[1].split()[0] == shown_as


def test_a_pods_names_stand_for_its_container() -> None:
    pod = Pod("trainer-0", "ml", "main")

    assert shown(look(container(pod=pod)))[1].split()[0] == "ml/trainer-0/main"


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        (Sort.NAME, ["a", "b", "c"]),
        (Sort.MEMORY, ["c", "a", "b"]),
        (Sort.CORES, ["b", "c", "a"]),
        (Sort.HELD, ["b", "a", "c"]),
        (Sort.REFUSED, ["a", "c", "b"]),
    ],
)
def test_containers_stand_in_the_order_chosen(sort: Sort, order: list[str]) -> None:
    history = History()
    for second in (0, 1):
        now = look(
            container("a", used_bytes=2, charged_ns=0, activity=Activity(3, 2)),
            container("b", used_bytes=1, charged_ns=second * 10**8, activity=Activity(1, 3)),
            container("c", used_bytes=3, charged_ns=second * 10**7, activity=Activity(2, 1)),
            seconds=second,
        )
        history.add(now)

    for reverse in (False, True):
        choice = Choice(sort=sort, reverse=reverse, processes=False)
        names = [line.split()[0] for line in texts(table.body(now, history, choice, 130))[1:]]
        assert names == (order[::-1] if reverse else order)


def test_a_filter_keeps_a_container_whole_or_its_processes_that_match() -> None:
    now = look(container("web"), container("db", processes=(process(11), process(12))))

    assert [line.split()[0] for line in shown(now, Choice(filter="WEB"))] == ["GPU", "web", "1"]
    assert [line.split()[0] for line in shown(now, Choice(filter="12"))] == ["GPU", "db", "12"]
    assert shown(now, Choice(filter="nobody"))[1:] == ["  nothing matches the filter"]


def test_a_place_that_another_container_took_over_is_no_negative_share() -> None:
    history = History()
    for second, charged_ns in enumerate((10**9, 0, 5 * 10**8)):
        history.add(look(container(charged_ns=charged_ns), seconds=second))

    assert history.shares("GPU-0", "web") == (0.0, 0.5)


def test_a_container_that_came_back_begins_anew() -> None:
    history = History()
    history.add(look(container(charged_ns=10**9), seconds=0))
    history.add(look(seconds=1))
    history.add(look(container(charged_ns=2 * 10**9), seconds=2))

    assert history.rates("GPU-0", "web") is None
