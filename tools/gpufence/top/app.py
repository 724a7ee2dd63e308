"""The live screen of `gpufence top`: keys, scrolling and refreshing around table.py's lines.

The one file that knows textual and rich. Looking happens in a thread, so that a slow driver stops
no key. Must not know regions.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input, Static

from . import table
from .history import History
from .order import Sort
from .table import Choice, Line, Tone
from .watch import Look, Watcher

_STYLES = {
    Tone.PLAIN: Style(),
    Tone.TITLE: Style(bold=True),
    Tone.HEADING: Style(reverse=True),
    Tone.QUIET: Style(dim=True),
    Tone.GOOD: Style(color="green"),
    Tone.WARN: Style(color="yellow"),
    Tone.BAD: Style(color="red", bold=True),
}
_INTERVALS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0)
_KEYS = "q quit  ? help  / filter  s sort  i invert  p processes  a all  space pause  + - pace"
_HELP = """\
gpufence top: what fenced containers use of their limits

 q, ctrl-C      quit                    arrows, j, k    scroll
 ?, h, F1       this help               PgUp, PgDn      scroll a page
 /              filter; Enter keeps it, Escape takes it away
 s              sort by the next of     name, memory, cores, held, refused
 n m c l r      sort by name, memory, cores, launches held, refused
 i              invert the order
 p              with or without processes
 a              also what has ended
 space          pause
 + -            look more or less often

 USED LIMIT MEM   memory, of the container's limit
 UNIFIED          the part of it that lies on the host, where memory is oversold
 CORES CORE-LIMIT share of GPU time since the last look; its limit (hard-soft)
 TREND            the same over time, the limit being the full height
 PRIO             its priority, where one is not normal
 WAIT             time that launches waited, of the time since the last look
 HELD/S HELD      launches that had to wait, a second and all together
 REFUSED          requests for memory that the limit refused
 *                the container whose turn it is; 12? a process of another namespace

? or Escape closes this."""


class Lines(ScrollView, can_focus=True):
    """Lines of which only the visible ones are drawn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "scroll_up", show=False),
        Binding("j", "scroll_down", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="lines")
        self._lines: Sequence[Line] = ()

    def show(self, lines: Sequence[Line]) -> None:
        """Draw these from now on; the place in them stays."""
        self._lines = lines
        self.virtual_size = Size(self.size.width, len(lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        number = y + self.scroll_offset.y
        line = self._lines[number] if number < len(self._lines) else ()
        style = self.rich_style
        strip = Strip([Segment(text, style + _STYLES[tone]) for text, tone in line])
        return strip.adjust_cell_length(self.size.width, style)


class TopApp(App[None]):
    """The whole screen."""

    CSS = """
    Screen, Static, Lines, VerticalScroll { background: ansi_default; color: ansi_default; }
    Input, Input:focus { background: ansi_default; color: ansi_default; }
    #title, #heading, #keys { height: 1; }
    #keys { text-style: dim; }
    #lines { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; }
    #filter { height: 1; border: none; padding: 0; display: none; }
    #help { height: 1fr; padding: 1 2; display: none; scrollbar-size-vertical: 1; }
    #help Static { height: auto; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", priority=False),
        Binding("ctrl+z", "suspend_process"),
        Binding("question_mark,h,f1", "help"),
        # Before any key behind it finds its receiver: over a slow line many come at once.
        Binding("slash", "filter", priority=True),
        Binding("escape", "leave"),
        Binding("s", "next_sort"),
        *(Binding(key, f"sort('{sort.value}')") for key, sort in zip("nmclr", Sort, strict=True)),
        Binding("i", "invert"),
        Binding("p", "processes"),
        Binding("a", "all"),
        Binding("space", "pause"),
        Binding("plus,equals_sign", "pace(-1)"),
        Binding("minus", "pace(1)"),
    ]

    def __init__(self, watcher: Watcher, choice: Choice, interval_s: float) -> None:
        # The terminal's own colours: they suit whoever chose them, and any number of them does.
        super().__init__(ansi_color=True)
        self._watcher = watcher
        self._choice = choice
        self._interval_s = interval_s
        self._history = History()
        self._look: Look | None = None
        self._paused = False

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Static(id="title", markup=False)
        yield Static(id="heading", markup=False)
        yield Lines()
        with VerticalScroll(id="help"):
            yield Static(_HELP, markup=False)
        yield Input(id="filter", placeholder="part of a name, number, command or user")
        yield Static(_KEYS, id="keys", markup=False)

    def on_mount(self) -> None:
        """Begin to look; a signal that ends programs ends this one with a whole terminal."""
        import asyncio

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.exit, None, 128 + number)
        self.query_one(Lines).focus()
        self._timer = self.set_interval(self._interval_s, self.look)
        self.look()

    @work(thread=True, exclusive=True, group="look")
    def look(self) -> None:
        """Look once, unless paused."""
        if not self._paused or self._look is None:
            look = self._watcher.look()
            self.call_from_thread(self._take, look)

    def _take(self, look: Look) -> None:
        self._history.add(look)
        self._look = look
        self._draw()

    def on_resize(self) -> None:
        """Lay the lines out for the new width."""
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        found = self.query(Lines)
        if self._look is None or not found:
            return  # nothing seen yet, or the screen is being taken down
        lines = found.first()
        width = max(lines.size.width, 1)
        lines.show(table.body(self._look, self._history, self._choice, width))
        heading = table.heading(self._look, self._history, width)
        self.query_one("#heading", Static).update(_text(heading))
        self.query_one("#title", Static).update(self._title())

    def _title(self) -> Text:
        assert self._look is not None
        choice = self._choice
        parts = [f"only '{choice.filter}'"] if choice.filter else []
        parts += [
            table.summary(self._look),
            "paused" if self._paused else f"every {self._interval_s:g} s",
            f"by {choice.sort.value}{', inverted' if choice.reverse else ''}",
        ]
        return Text("gpufence top  ", style="bold").append("  ".join(parts), style="not bold")

    # ---- keys ----

    def _choose(self, choice: Choice) -> None:
        self._choice = choice
        self._draw()

    def action_help(self) -> None:
        """Explain, or show the lines again."""
        explained, lines = self.query_one("#help", VerticalScroll), self.query_one(Lines)
        explained.display = not explained.display
        lines.display = not explained.display
        self.screen.set_focus(explained if explained.display else lines)

    def action_next_sort(self) -> None:
        """The next order."""
        orders = list(Sort)
        following = orders[(orders.index(self._choice.sort) + 1) % len(orders)]
        self._choose(replace(self._choice, sort=following))

    def action_sort(self, name: str) -> None:
        """A certain order."""
        self._choose(replace(self._choice, sort=Sort(name)))

    def action_invert(self) -> None:
        """The least first."""
        self._choose(replace(self._choice, reverse=not self._choice.reverse))

    def action_processes(self) -> None:
        """With or without processes."""
        self._choose(replace(self._choice, processes=not self._choice.processes))

    def action_all(self) -> None:
        """With or without what has ended."""
        self._watcher.all_of_them = not self._watcher.all_of_them
        self.look()

    def action_pause(self) -> None:
        """Keep what is shown, or go on."""
        self._paused = not self._paused
        self._draw()

    def action_pace(self, step: int) -> None:
        """Look more or less often."""
        faster = [pace for pace in reversed(_INTERVALS_S) if pace < self._interval_s]
        slower = [pace for pace in _INTERVALS_S if pace > self._interval_s]
        self._interval_s = next(iter(slower if step > 0 else faster), self._interval_s)
        self._timer.stop()
        self._timer = self.set_interval(self._interval_s, self.look)
        self._draw()

    def action_filter(self) -> None:
        """Ask for a part of a name."""
        field = self.query_one("#filter", Input)
        if field.has_focus:
            field.insert_text_at_cursor("/")
            return
        field.value = self._choice.filter
        field.display = True
        self.screen.set_focus(field)

    def action_leave(self) -> None:
        """Everything again, without a filter."""
        if self.query_one("#help", VerticalScroll).display:
            self.action_help()
            return
        self._end_filter()
        self._choose(replace(self._choice, filter=""))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self._choose(replace(self._choice, filter=event.value))

    def on_input_submitted(self) -> None:
        """Keep it."""
        self._end_filter()

    def _end_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.screen.set_focus(self.query_one(Lines))


def _text(line: Line) -> Text:
    return Text.assemble(*((text, _STYLES[tone]) for text, tone in line))
