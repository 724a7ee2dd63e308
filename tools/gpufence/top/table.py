"""What `gpufence top` shows, as lines of text of a given width; colours are names.

A pure function of a look, its history and what the user chose, so the screen and the plain output
are the same lines. Must not know terminals or textual. Standard library only.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpufence.config.terms import Priority
from gpufence.container import called

from .history import History, ceiling
from .order import Sort
from .watch import Container, Gpu, Look, Process

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.:-=+*#"
_TREND = 16


class Tone(enum.Enum):
    """What a piece of text means; whoever shows it has the colours."""

    PLAIN = "plain"
    TITLE = "title"
    HEADING = "heading"
    QUIET = "quiet"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


Piece = tuple[str, Tone]
Line = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user wants to see. `filter` is a part of any name or number, in any case."""

    sort: Sort = Sort.MEMORY
    reverse: bool = False
    filter: str = ""
    processes: bool = True
    unicode: bool = True


@dataclass(frozen=True, slots=True)
class _Column:
    """A column; the higher its `rank`, the sooner it goes where there is no room.

    One with `hides` is there only where it has something to tell.
    """

    title: str
    width: int
    rank: int
    hides: bool = False


_COLUMNS = (
    _Column("USER", 9, 8),
    _Column("USED", 9, 0),
    _Column("LIMIT", 9, 1),
    _Column("MEM", 5, 2),
    _Column("UNIFIED", 9, 7, hides=True),
    _Column("CORES", 6, 2, hides=True),
    _Column("CORE-LIMIT", 10, 3, hides=True),
    _Column("PRIO", 6, 6, hides=True),
    _Column("TREND", _TREND, 7, hides=True),
    _Column("WAIT", 5, 5, hides=True),
    _Column("HELD/S", 7, 6, hides=True),
    _Column("HELD", 6, 9, hides=True),
    _Column("REFUSED", 7, 4, hides=True),
)
_NAME_LEAST = 18
_LEFT = frozenset(("USER", "PRIO", "TREND"))

Cells = dict[str, Piece]


def heading(look: Look, history: History, width: int) -> Line:
    """The columns' names."""
    columns = _fitting(look, history, width)
    cells: Cells = {column.title: (column.title, Tone.HEADING) for column in columns}
    return _row("CONTAINER / PROCESS", Tone.HEADING, cells, columns, width)


def body(look: Look, history: History, choice: Choice, width: int) -> list[Line]:
    """Every GPU with its containers and their processes, and what could not be read."""
    columns = _fitting(look, history, width)
    lines: list[Line] = []
    for gpu in look.gpus:
        lines.append(_cut(_gpu_line(gpu), width))
        shown = 0
        for container in _sorted(
            gpu.containers, _container_rank(gpu, history, choice.sort), choice
        ):
            processes = _chosen(container, choice)
            if processes is None:
                continue
            shown += 1
            name, tone = _name_of(container)
            cells = _container_cells(gpu, container, history, choice)
            lines.append(_row("  " + name, tone, cells, columns, width))
            if choice.processes:
                rank = _process_rank(choice.sort)
                lines += [
                    _row(
                        f"    {_process_name(each)}",
                        Tone.QUIET,
                        _process_cells(each),
                        columns,
                        width,
                    )
                    for each in _sorted(processes, rank, choice)
                ]
        if shown == 0:
            none = "no container with a limit here"
            text = "nothing matches the filter" if gpu.containers else none
            lines.append(_cut((("  " + text, Tone.QUIET),), width))
    if not look.gpus:
        lines.append(_cut((("no GPU, and no container with a limit", Tone.QUIET),), width))
    lines += [_cut(((f"! {problem}", Tone.WARN),), width) for problem in look.problems]
    return lines


def summary(look: Look) -> str:
    """How much of everything there is."""
    return ", ".join(
        (
            _count(len(look.gpus), "GPU"),
            _count(look.containers, "container"),
            _count(look.processes, "process", "processes"),
        )
    )


def size(count: int) -> str:
    """Bytes as people read them: 512B, 1.5MiB, 11.2GiB; at most eight characters."""
    if count < 1024:
        return f"{count}B"
    amount = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        amount /= 1024
        # What would be printed as 1000 or more is told in the next unit.
        if amount < 999.5 or unit == "PiB":
            break
    return f"{amount:.{0 if amount >= 99.95 else 1}f}{unit}" if amount < 1e4 else "damaged"


def spark(shares: Sequence[float], top: float, width: int, bars: str = BARS) -> str:
    """The last `width` shares as a line of bars, `top` being the highest."""
    levels = len(bars)
    drawn = (min(levels - 1, int(share / top * levels)) if top > 0 else 0 for share in shares)
    return "".join(bars[level] for level in list(drawn)[-width:]).rjust(width)


def number(count: float) -> str:
    """A count in at most six characters."""
    for unit in ("", "k", "M", "G", "T", "P"):
        if count < 999.5 or unit == "P":
            break
        count /= 1000
    return f"{count:.1f}{unit}" if unit and count < 99.95 else f"{count:.0f}{unit}"


# ---- rows ----


def _gpu_line(gpu: Gpu) -> Line:
    reading = gpu.reading
    if reading is None:
        return ((gpu.uuid, Tone.TITLE),)
    pieces: list[Piece] = [(f"GPU {reading.index}  {reading.name or ''}", Tone.TITLE)]
    if reading.memory_total_bytes and reading.memory_used_bytes is not None:
        part = reading.memory_used_bytes / reading.memory_total_bytes
        text = f"{size(reading.memory_used_bytes)} of {size(reading.memory_total_bytes)}"
        pieces.append((f"  {text}", _tone_of(part)))
    if reading.busy is not None:
        pieces.append((f"  busy {reading.busy:.0%}", Tone.PLAIN))
    if reading.temperature is not None:
        pieces.append((f"  {reading.temperature} C", Tone.PLAIN))
    return (*pieces, (f"  {gpu.uuid}", Tone.QUIET))


def _name_of(container: Container) -> tuple[str, Tone]:
    name = called.shown(container.name, container.pod)
    turn = " *" if container.has_turn else ""
    frozen = " frozen" if container.frozen else ""
    return name + turn + frozen, Tone.PLAIN if container.alive else Tone.QUIET


def _container_cells(gpu: Gpu, container: Container, history: History, choice: Choice) -> Cells:
    cells: Cells = {}
    if container.memory_known:
        cells["USED"] = (size(container.used_bytes), Tone.PLAIN)
        cells["LIMIT"] = _limit(container)
        if container.limit_bytes:
            part = container.used_bytes / container.limit_bytes
            cells["MEM"] = (_percent(part), _tone_of(part))
        if container.oversold:
            cells["UNIFIED"] = (size(container.unified_bytes), Tone.WARN)
    if not container.shares_known:
        cells["CORE-LIMIT"] = ("unknown" if container.alive else "-", Tone.QUIET)
    rates = history.rates(gpu.uuid, container.name)
    top = ceiling(container)
    if container.shares is not None and top is not None:
        hard, soft = container.shares.hard / 100_000, container.shares.soft / 100_000
        text = f"{hard:.0%}" if soft <= hard else f"{hard:.0%}-{soft:.0%}"
        cells["CORE-LIMIT"] = (text, Tone.QUIET)
        if rates is not None and rates.share is not None:
            cells["CORES"] = (f"{min(rates.share, 9.99):.1%}", _tone_of(rates.share / (top or 1)))
        bars = BARS if choice.unicode else ASCII_BARS
        shares = history.shares(gpu.uuid, container.name)
        cells["TREND"] = (spark(shares, top, _TREND, bars), Tone.GOOD)
    if container.priority is not None:
        cells["PRIO"] = (container.priority.word, Tone.QUIET)
    if rates is not None and container.memory_known:
        cells["WAIT"] = (_percent(rates.wait), Tone.PLAIN)
        cells["HELD/S"] = (number(rates.held_per_s), Tone.PLAIN)
    return cells | _activity_cells(container)


def _process_name(process: Process) -> str:
    number_there = f"{process.pid}{'?' if process.foreign else ''}"
    return f"{number_there} {process.command or ('ended' if not process.alive else '')}".rstrip()


def _process_cells(process: Process) -> Cells:
    cells: Cells = {"USER": (process.user, Tone.QUIET)}
    if process.used_bytes is None:
        return cells
    cells["USED"] = (size(process.used_bytes), Tone.QUIET)
    if process.limit_bytes:
        cells["LIMIT"] = (size(process.limit_bytes), Tone.QUIET)
        cells["MEM"] = (_percent(process.used_bytes / process.limit_bytes), Tone.QUIET)
    if process.unified_bytes:
        cells["UNIFIED"] = (size(process.unified_bytes), Tone.QUIET)
    return cells | _activity_cells(process)


def _activity_cells(of: Container | Process) -> Cells:
    refusals, held = of.activity.refusals, of.activity.launches_held
    return {
        "HELD": (number(held), Tone.QUIET),
        "REFUSED": (number(refusals), Tone.BAD if refusals else Tone.QUIET),
    }


def _limit(container: Container) -> Piece:
    if container.limit_bytes is None:
        return "none" if container.limit_known else "-", Tone.QUIET
    return size(container.limit_bytes), Tone.PLAIN


def _percent(part: float) -> str:
    return f"{part:.0%}" if part < 100 else ">99x"


def _tone_of(part: float) -> Tone:
    if part > 1.005:
        return Tone.BAD
    return Tone.WARN if part >= 0.9 else Tone.GOOD


def _count(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


# ---- order and choice ----


def _sorted(items: Iterable, rank: Callable, choice: Choice) -> list:  # type: ignore[type-arg]
    ascending = choice.sort is Sort.NAME
    return sorted(items, key=rank, reverse=choice.reverse == ascending)


def _container_rank(gpu: Gpu, history: History, sort: Sort) -> Callable[[Container], object]:
    def share(container: Container) -> float:
        rates = history.rates(gpu.uuid, container.name)
        return rates.share or 0.0 if rates else 0.0

    ranks: dict[Sort, Callable[[Container], object]] = {
        Sort.NAME: lambda container: container.name,
        Sort.MEMORY: lambda container: (container.used_bytes, container.name),
        Sort.CORES: lambda container: (share(container), container.name),
        Sort.HELD: lambda container: (container.activity.launches_held, container.name),
        Sort.REFUSED: lambda container: (container.activity.refusals, container.name),
    }
    return ranks[sort]


def _process_rank(sort: Sort) -> Callable[[Process], object]:
    ranks: dict[Sort, Callable[[Process], object]] = {
        Sort.NAME: lambda process: (process.command or "", process.pid),
        Sort.HELD: lambda process: (process.activity.launches_held, process.pid),
        Sort.REFUSED: lambda process: (process.activity.refusals, process.pid),
    }
    return ranks.get(sort, lambda process: (process.used_bytes or 0, process.pid))


def _chosen(container: Container, choice: Choice) -> tuple[Process, ...] | None:
    """Its processes that the filter lets through; None when it does not let the container."""
    wanted = choice.filter.lower()
    pod = container.pod
    names = " ".join((container.name, pod.namespace, pod.name, pod.container))
    if wanted in names.lower():
        return container.processes
    processes = tuple(
        process
        for process in container.processes
        if wanted in f"{process.pid} {process.command or ''} {process.user}".lower()
    )
    return processes or None


# ---- layout ----


def _told(look: Look, history: History) -> set[str]:
    """The columns that hide, and have something to tell.

    Each goes by what stays once it is so: others would move at every look.
    """
    containers = [container for gpu in look.gpus for container in gpu.containers]
    limited = any(each.shares or (each.alive and not each.shares_known) for each in containers)
    held = any(each.activity.launches_held for each in containers)
    normal = {None, Priority.NORMAL}
    told = {
        "UNIFIED": any(each.oversold for each in containers),
        "CORES": limited,
        "CORE-LIMIT": limited,
        "TREND": limited,
        "PRIO": any(each.priority not in normal for each in containers),
        "WAIT": history.anybody_waited,
        "HELD/S": held,
        "HELD": held,
        "REFUSED": any(each.activity.refusals for each in containers),
    }
    return {title for title, tells in told.items() if tells}


def _fitting(look: Look, history: History, width: int) -> list[_Column]:
    """The columns that fit beside a name of the least width, most useful first."""
    told = _told(look, history)
    wanted = [column for column in _COLUMNS if not column.hides or column.title in told]
    kept: list[_Column] = []
    room = width - _NAME_LEAST
    for column in sorted(wanted, key=lambda column: column.rank):
        if column.width + 1 > room:
            break
        kept.append(column)
        room -= column.width + 1
    return [column for column in wanted if column in kept]


def _row(name: str, tone: Tone, cells: Cells, columns: Sequence[_Column], width: int) -> Line:
    room = width - sum(column.width + 1 for column in columns)
    pieces: list[Piece] = [(_fit(name, room), tone)]
    for column in columns:
        text, cell_tone = cells.get(column.title, ("", Tone.PLAIN))
        text = _fit(text, column.width)
        if column.title not in _LEFT:
            text = text.rstrip().rjust(column.width)
        pieces.append((" " + text, cell_tone))
    return tuple(pieces)


def _fit(text: str, width: int) -> str:
    if len(text) <= width:
        return text.ljust(width)
    return text[: max(0, width - 1)] + "~" if width > 0 else ""


def _cut(line: Line, width: int) -> Line:
    pieces: list[Piece] = []
    for text, tone in line:
        pieces.append((text[:width], tone))
        width -= len(text)
        if width <= 0:
            break
    return tuple(pieces)
