"""Who is stopped with the simulated driver's lock in its hands is seen, wherever the lock lies."""

from __future__ import annotations

import subprocess
import sys

from tests.support.robust import holds_robust_mutex

PROGRAM = """
import ctypes, sys
libc = ctypes.CDLL(None)
mutex, kind = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
libc.pthread_mutexattr_init(kind)
libc.pthread_mutexattr_setrobust(kind, 1)
libc.pthread_mutex_init(mutex, kind)
for call in (libc.pthread_mutex_lock, libc.pthread_mutex_unlock):
    print(call(mutex), flush=True)
    sys.stdin.readline()
"""


def test_who_holds_a_robust_mutex_is_seen_until_it_lets_go() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout

        locked, holds = process.stdout.readline(), holds_robust_mutex(process.pid)
        print(file=process.stdin, flush=True)
        unlocked, still_holds = process.stdout.readline(), holds_robust_mutex(process.pid)
        process.stdin.close()

    assert (locked, unlocked) == ("0\n", "0\n")
    assert (holds, still_holds) == (True, False)
