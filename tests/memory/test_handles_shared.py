"""Memory that several processes hold: charged once, as long as any of them holds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.charges import GIB, MIB
from tests.support.handles import Handles, handles
from tests.support.machine import Sim

SIZE = 512 * MIB


def share_handle(
    owner: Handles, importer: Handles
) -> tuple[Callable[[], None], Callable[[], None]]:
    """The importer gets physical memory; how either side lets go of it."""
    handle = owner.make("create", "shared", SIZE)
    descriptor = owner.make("export", handle)
    fetched = importer.make("fetch", owner.make("pid"), descriptor)
    imported = importer.make("import", fetched)
    owner.does("close", descriptor)
    importer.does("close", fetched)
    return lambda: owner.does("release", handle), lambda: importer.does("release", imported)


def share_address(
    owner: Handles, importer: Handles
) -> tuple[Callable[[], None], Callable[[], None]]:
    """The same by an IPC handle."""
    address = owner.make("alloc", SIZE)
    code, *words = owner.ask("ipc_get", address + SIZE // 2)  # any address in it will do
    assert code == 0
    opened = importer.make("ipc_open", *words)
    return lambda: owner.does("free", address), lambda: importer.does("ipc_close", opened)


WAYS = [share_handle, share_address]


@pytest.mark.parametrize("share", WAYS)
def test_what_an_importer_holds_is_counted_once_and_until_it_lets_go(
    bare: Sim, state: Path, share: Callable[..., tuple[Callable[[], None], Callable[[], None]]]
) -> None:
    with handles(bare, state) as owner, handles(bare, state) as importer:
        start = owner.charged()
        owner_ends, importer_ends = share(owner, importer)
        assert owner.charged() == start + SIZE

        owner_ends()

        assert owner.charged() == start + SIZE
        owner.refused("create", "device", SIZE + 32 * MIB)
        importer.refused("create", "device", SIZE + 32 * MIB)
        importer_ends()
        owner.make("create", "device", GIB - start)
        assert owner.charged() == GIB


@pytest.mark.parametrize("share", WAYS)
def test_an_importer_that_lets_go_first_changes_nothing(
    bare: Sim, state: Path, share: Callable[..., tuple[Callable[[], None], Callable[[], None]]]
) -> None:
    with handles(bare, state) as owner, handles(bare, state) as importer:
        start = owner.charged()
        owner_ends, importer_ends = share(owner, importer)

        importer_ends()
        assert owner.charged() == start + SIZE
        owner_ends()

        assert owner.charged() == start


@pytest.mark.parametrize("share", WAYS)
def test_an_owner_that_dies_leaves_its_bytes_to_the_importer(
    bare: Sim, state: Path, share: Callable[..., tuple[Callable[[], None], Callable[[], None]]]
) -> None:
    with handles(bare, state) as importer:
        start = importer.charged()
        with handles(bare, state) as owner:
            _, importer_ends = share(owner, importer)

        importer.refused("create", "device", SIZE + 32 * MIB)
        assert importer.charged() == start + SIZE
        importer_ends()

        importer.make("create", "device", GIB - start)


@pytest.mark.parametrize("share", WAYS)
def test_an_importer_that_dies_leaves_nothing_behind(
    bare: Sim, state: Path, share: Callable[..., tuple[Callable[[], None], Callable[[], None]]]
) -> None:
    with handles(bare, state) as owner:
        start = owner.charged()
        with handles(bare, state) as importer:
            owner_ends, _ = share(owner, importer)
            owner_ends()
            assert owner.charged() == start + SIZE

        owner.make("create", "device", GIB - start)


def test_memory_that_nobody_imports_goes_with_its_owner(bare: Sim, state: Path) -> None:
    with handles(bare, state) as owner, handles(bare, state) as other:
        start = owner.charged()
        handle = owner.make("create", "shared", SIZE)
        owner.does("close", owner.make("export", handle))
        owner.does("release", handle)

        assert other.charged() == start


def test_an_address_opened_twice_is_closed_twice(bare: Sim, state: Path) -> None:
    with handles(bare, state) as owner, handles(bare, state) as importer:
        start = owner.charged()
        address = owner.make("alloc", SIZE)
        _, *words = owner.ask("ipc_get", address)
        opened = importer.make("ipc_open", *words)
        assert importer.make("ipc_open", *words) == opened
        owner.does("free", address)

        importer.does("ipc_close", opened)
        importer.refused("create", "device", SIZE + 32 * MIB)
        importer.does("ipc_close", opened)

        importer.make("create", "device", GIB - start)


@pytest.mark.parametrize("opened_before", [1, 2])
def test_a_close_that_fails_ends_no_import(bare: Sim, state: Path, opened_before: int) -> None:
    with (
        handles(bare, state) as owner,
        handles(bare, state, cuIpcCloseMemHandle="1=700") as importer,
    ):
        start = owner.charged()
        address = owner.make("alloc", SIZE)
        _, *words = owner.ask("ipc_get", address)
        for _ in range(opened_before):
            opened = importer.make("ipc_open", *words)
        assert importer.ask("ipc_close", opened)[0] == 700
        for _ in range(opened_before, 2):
            importer.make("ipc_open", *words)
        owner.does("free", address)

        importer.does("ipc_close", opened)
        importer.refused("create", "device", SIZE + 32 * MIB)
        importer.does("ipc_close", opened)

        importer.make("create", "device", GIB - start)


def test_an_import_that_fails_holds_nothing(bare: Sim, state: Path) -> None:
    with (
        handles(bare, state) as owner,
        handles(bare, state, cuIpcOpenMemHandle_v2="1=700") as importer,
    ):
        start = owner.charged()
        address = owner.make("alloc", SIZE)
        _, *words = owner.ask("ipc_get", address)
        assert importer.ask("ipc_open", *words)[0] == 700

        owner.does("free", address)

        assert importer.charged() == start


def test_what_was_opened_twice_ends_with_its_context(bare: Sim, state: Path) -> None:
    with handles(bare, state) as owner, handles(bare, state) as importer:
        start = owner.charged()
        address = owner.make("alloc", SIZE)
        _, *words = owner.ask("ipc_get", address)
        for _ in range(2):
            importer.make("ipc_open", *words)
        owner.does("free", address)

        importer.does("leave")

        owner.make("create", "device", GIB - start)


def test_memory_that_its_owner_imports_again_ends_with_both_handles(bare: Sim, state: Path) -> None:
    with handles(bare, state) as owner:
        start = owner.charged()
        handle = owner.make("create", "shared", SIZE)
        descriptor = owner.make("export", handle)
        again = owner.make("import", descriptor)
        owner.does("close", descriptor)

        owner.does("release", handle)

        assert owner.charged() == start + SIZE
        owner.does("release", again)
        owner.make("create", "device", GIB - start)
