"""The live screen of `gpufence top`, driven by keys: what it shows and what each key does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("textual", reason="the live screen needs the extra [top]")

from gpufence.top.app import Lines, TopApp
from gpufence.top.table import Choice
from gpufence.top.watch import Watcher
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widgets import Input, Static

from .region_files import GIB, RegionFile, Signed


@dataclass(frozen=True, slots=True)
class Screen:
    """What a person sees."""

    app: TopApp
    pilot: Pilot[None]

    @property
    def lines(self) -> list[str]:
        lines = self.app.query_one(Lines)
        return [lines.render_line(y).text.rstrip() for y in range(lines.size.height)]

    @property
    def title(self) -> str:
        return str(self.app.query_one("#title", Static).render())

    def first_words(self) -> list[str]:
        return [line.split()[0] for line in self.lines if line.strip()]

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for the screen; a hang fails with what it shows."""
        for _ in range(400):
            if true():
                return
            await self.pilot.pause(0.02)
        pytest.fail("\n".join([self.title, *self.lines]))

    async def press_until(self, key: str, true: Callable[[], bool]) -> None:
        """The same, with a key that goes nowhere while the lines have no layout or no focus."""
        for _ in range(400):
            if true():
                return
            await self.pilot.press(key)
            await self.pilot.pause(0.02)
        pytest.fail("\n".join([self.title, *self.lines]))


def on_screen(
    folder: Path, steps: Callable[[Screen], Awaitable[None]], size: tuple[int, int] = (110, 30)
) -> None:
    """Start the screen over the folder's files and take the steps."""

    async def drive() -> None:
        app = TopApp(Watcher({}, str(folder)), Choice(), 0.05)
        async with app.run_test(size=size) as pilot:
            screen = Screen(app, pilot)
            await screen.until(lambda: screen.title.startswith("gpufence top"))
            await steps(screen)

    asyncio.run(drive())


def containers(folder: Path, *names: str, processes: int = 1) -> list[RegionFile]:
    """Living ones: the later, the more memory and the fewer refusals."""
    made = []
    for number, name in enumerate(names, start=1):
        file = RegionFile(folder, name, slots=processes)
        file.device(0)
        for slot in range(processes):
            file.process(slot, Signed(pid=100 * number + slot))
            file.use(0, slot, held=number * GIB, limit=8 * GIB, activity=(9 - number, 0, 0))
        made.append(file)
    return made


def test_an_empty_machine(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        assert screen.lines[0] == "no GPU, and no container with a limit"

    on_screen(tmp_path, steps)


def test_a_container_appears_and_vanishes(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        (web,) = containers(tmp_path, "web")
        await screen.until(lambda: "web" in screen.first_words())
        web.path.unlink()
        await screen.until(lambda: "web" not in screen.first_words())
        containers(tmp_path, "db")
        await screen.until(lambda: "db" in screen.first_words())

    on_screen(tmp_path, steps)


def test_keys_sort_invert_and_fold(tmp_path: Path) -> None:
    files = containers(tmp_path, "web", "db")

    async def steps(screen: Screen) -> None:
        async def order(*keys: str) -> list[str]:
            await screen.pilot.press(*keys)
            return screen.first_words()[1:]

        assert await order() == ["db", "200?", "web", "100?"]
        assert await order("p") == ["db", "web"]
        assert await order("i") == ["web", "db"]
        assert await order("i", "r") == ["web", "db"]
        assert "by refused" in screen.title
        assert await order("n") == ["db", "web"]
        assert await order("s") == ["db", "web"]
        assert "by memory" in screen.title

    on_screen(tmp_path, steps)
    assert files


def test_a_filter_is_typed_kept_and_taken_away(tmp_path: Path) -> None:
    files = containers(tmp_path, "web", "db")

    async def steps(screen: Screen) -> None:
        await screen.pilot.press("slash", "w", "e")
        assert screen.first_words()[1:] == ["web", "100?"]
        await screen.pilot.press("q", "backspace", "enter")  # q is a letter here
        assert not screen.app.query_one("#filter", Input).display
        assert "only 'we'" in screen.title
        await screen.pilot.press("escape")
        assert len(screen.first_words()) == 5

    on_screen(tmp_path, steps)
    assert files


def test_a_pause_keeps_what_is_shown(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        await screen.pilot.press("space")
        assert "paused" in screen.title
        files = containers(tmp_path, "web")
        await screen.pilot.pause(0.3)
        assert "web" not in screen.first_words()
        await screen.pilot.press("space")
        await screen.until(lambda: "web" in screen.first_words())
        assert files

    on_screen(tmp_path, steps)


def test_the_pace_changes_and_stops_at_its_ends(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        for key, pace in [("minus", "0.1"), ("minus", "0.25"), ("plus", "0.1"), ("plus", "0.1")]:
            await screen.pilot.press(key)
            assert f"every {pace} s" in screen.title

    on_screen(tmp_path, steps)


@pytest.mark.parametrize("key", ["question_mark", "escape", "h"])
def test_help_explains_until_it_is_closed(tmp_path: Path, key: str) -> None:
    async def steps(screen: Screen) -> None:
        explained = screen.app.query_one("#help", VerticalScroll)
        await screen.pilot.press("question_mark")
        assert explained.display
        await screen.pilot.press(key)
        assert not explained.display
        await screen.until(lambda: screen.lines[0] == "no GPU, and no container with a limit")

    on_screen(tmp_path, steps)


def test_help_scrolls_where_the_screen_is_too_low_for_it(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        explained = screen.app.query_one("#help", VerticalScroll)
        await screen.pilot.press("question_mark")
        await screen.pilot.pause()
        assert explained.max_scroll_y > 0
        await screen.pilot.press("end")
        await screen.until(lambda: explained.scroll_y == explained.max_scroll_y)

    on_screen(tmp_path, steps, size=(80, 24))


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_keys_that_end_it(tmp_path: Path, key: str) -> None:
    async def steps(screen: Screen) -> None:
        await screen.pilot.press(key)
        await screen.until(lambda: not screen.app.is_running)
        assert screen.app.return_code == 0

    on_screen(tmp_path, steps)


def test_two_hundred_processes_scroll(tmp_path: Path) -> None:
    files = containers(tmp_path, "web", "db", processes=100)

    async def steps(screen: Screen) -> None:
        assert "2 containers, 200 processes" in screen.title
        await screen.press_until("end", lambda: screen.first_words()[-1] == "100?")
        await screen.press_until("home", lambda: screen.first_words()[0].startswith("GPU-"))

    on_screen(tmp_path, steps)
    assert files


@pytest.mark.parametrize("size", [(20, 5), (60, 10), (250, 60)])
def test_any_size_of_terminal(tmp_path: Path, size: tuple[int, int]) -> None:
    files = containers(tmp_path, "web")

    async def steps(screen: Screen) -> None:
        await screen.until(lambda: "web" in screen.first_words())
        await screen.pilot.resize_terminal(90, 20)
        await screen.until(lambda: screen.app.query_one(Lines).size.width >= 88)
        await screen.until(lambda: "8.0GiB" in screen.lines[1])

    on_screen(tmp_path, steps, size)
    assert files
