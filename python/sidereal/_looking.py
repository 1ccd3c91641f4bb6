"""Threads that look after an object now and then, as long as somebody has it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def look_after(
    owner: T,
    look: Callable[[T], object],
    every_s: float,
    name: str,
    ended: threading.Event,
) -> Callable[[], None]:
    """Has a thread call look(owner), at once and each `every_s` seconds, until the event is set or
    nobody but the thread has the owner. What is returned waits for its end.

    `look` must not refer to the owner, and all that it waits for has a deadline, or looks at the
    event: the thread has ended before the owner is gone, and before the program is. One that came
    back from a call of the engine when there is no interpreter any more would end the process.
    """
    thread = threading.Thread(
        target=_look_on, args=(weakref.ref(owner), look, every_s, ended), name=name, daemon=True
    )
    thread.start()
    return weakref.finalize(owner, _end, ended, thread)


def _look_on(
    owner: weakref.ref[T], look: Callable[[T], object], every_s: float, ended: threading.Event
) -> None:
    while not ended.is_set():
        one = owner()
        if one is None:
            return
        look(one)
        del one
        ended.wait(every_s)


def _end(ended: threading.Event, thread: threading.Thread) -> None:
    ended.set()
    if thread is not threading.current_thread():
        thread.join()
