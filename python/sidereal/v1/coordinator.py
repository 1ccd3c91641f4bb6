"""Threads that end together, and those that fill queues (tf.train.Coordinator, QueueRunner)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .. import errors
from .default_session import need_session
from .graph import GraphKeys, add_to_collection, get_default_graph

#: How long a wait lets pass before it looks whether a thread has ended by itself, in seconds.
_LOOK_S = 0.2


class Coordinator:
    """Lets threads end together (tf.train.Coordinator):

        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        ...
        coordinator.request_stop()
        coordinator.join(threads)

    A thread asks should_stop() in its loop, and says request_stop(error) when it fails; join()
    raises that error. clean_stop_exception_types: errors that mean a good end.

    All methods may be called from any thread.
    """

    def __init__(
        self, clean_stop_exception_types: tuple[type[BaseException], ...] | None = None
    ) -> None:
        clean = clean_stop_exception_types
        self._clean = (errors.OutOfRangeError,) if clean is None else tuple(clean)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._threads: set[threading.Thread] = set()
        self._joined = False

    def request_stop(self, ex: BaseException | tuple[Any, ...] | None = None) -> None:
        """Tells all threads to stop. `ex`, an exception or a sys.exc_info(), is what join() raises,
        if it is the first and no good end."""
        error = ex[1] if isinstance(ex, tuple) else ex
        with self._lock:
            if self._joined:
                if error is not None and not isinstance(error, self._clean):
                    raise error
                return
            if not self._stop.is_set():
                self._error = None if isinstance(error, self._clean) else error
                self._stop.set()

    def should_stop(self) -> bool:
        """Whether threads are to stop."""
        return self._stop.is_set()

    def clear_stop(self) -> None:
        """Forgets that threads were to stop, and why: the coordinator can be used again."""
        with self._lock:
            self._joined = False
            self._error = None
            self._stop.clear()

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Waits until threads are to stop, for `timeout` seconds at most; whether they are."""
        return self._stop.wait(timeout)

    @contextlib.contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """An error in the context is given to request_stop()."""
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - join() raises it.
            self.request_stop(error)

    def register_thread(self, thread: threading.Thread) -> None:
        """join() waits for it as well."""
        with self._lock:
            self._threads.add(thread)

    def raise_requested_exception(self) -> None:
        """Raises the error that threads were stopped with, if there is one."""
        with self._lock:
            if self._error is not None:
                raise self._error

    def join(
        self,
        threads: Iterable[threading.Thread] | None = None,
        stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> None:
        """Waits until all threads, the registered ones and these, have ended. Once they are to stop
        they have `stop_grace_period_secs` for it: then a RuntimeError names those that run, unless
        `ignore_live_threads`. Raises the error that they were stopped with."""
        with self._lock:
            waited_for = self._threads.union(threads or ())
        while any(thread.is_alive() for thread in waited_for) and not self.wait_for_stop(_LOOK_S):
            pass
        end = time.monotonic() + stop_grace_period_secs
        for thread in waited_for:
            thread.join(max(0.0, end - time.monotonic()))
        alive = sorted(thread.name for thread in waited_for if thread.is_alive())
        with self._lock:
            self._joined = True
            self._threads = set()
            if self._error is not None:
                raise self._error
        if alive and not ignore_live_threads:
            raise RuntimeError(
                f"Coordinator stopped with threads still running after {stop_grace_period_secs} s: "
                + ", ".join(alive)
            )

    @property
    def joined(self) -> bool:
        """Whether join() has ended."""
        return self._joined


class QueueRunner:
    """Threads that run the enqueue operations of a queue until it is closed
    (tf.train.QueueRunner).

    enqueue_ops: one thread runs each, again and again. close_op, cancel_op: what closes the queue
        at a good end, and at a stop; made here, if absent. queue_closed_exception_types: errors
        of an enqueue operation that mean that its queue is closed.
    """

    def __init__(
        self,
        queue: Any,
        enqueue_ops: Sequence[Any],
        close_op: Any = None,
        cancel_op: Any = None,
        queue_closed_exception_types: tuple[type[BaseException], ...] | None = None,
    ) -> None:
        if queue is None or not enqueue_ops:
            raise ValueError("Must provide queue and enqueue_ops.")
        self.queue = queue
        self.enqueue_ops = list(enqueue_ops)
        self.close_op = queue.close() if close_op is None else close_op
        if cancel_op is None:
            cancel_op = queue.close(cancel_pending_enqueues=True)
        self.cancel_op = cancel_op
        types = queue_closed_exception_types
        self.queue_closed_exception_types = (errors.OutOfRangeError,) if types is None else types
        self._lock = threading.Lock()
        self._running: dict[int, int] = {}
        self._raised: list[Exception] = []

    @property
    def name(self) -> str:
        """The name of the queue."""
        return str(self.queue.name)

    @property
    def exceptions_raised(self) -> list[Exception]:
        """Errors of threads that had no coordinator."""
        return list(self._raised)

    def create_threads(
        self, sess: Any, coord: Coordinator | None = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """A thread for each enqueue operation, and with `coord` one that closes the queue when all
        are to stop. None are made while those of an earlier call for `sess` run."""
        with self._lock:
            if self._running.get(id(sess), 0) > 0:
                return []
            self._running[id(sess)] = len(self.enqueue_ops)
        made = [
            threading.Thread(target=self._run, args=(sess, op, coord), daemon=daemon,
                             name=f"QueueRunner-{self.name}-{number}")
            for number, op in enumerate(self.enqueue_ops)
        ]  # fmt: skip
        if coord is not None:
            made.append(
                threading.Thread(target=self._close_on_stop, args=(sess, coord), daemon=daemon,
                                 name=f"QueueRunner-{self.name}-close")
            )  # fmt: skip
        for thread in made:
            if coord is not None:
                coord.register_thread(thread)
            if start:
                thread.start()
        return made

    def _run(self, sess: Any, enqueue_op: Any, coord: Coordinator | None) -> None:
        ended = False
        try:
            while coord is None or not coord.should_stop():
                try:
                    sess.run(enqueue_op)
                except self.queue_closed_exception_types:
                    ended = True
                    if self._left(sess) == 0:
                        # What closes twice, or after the session's end, has nothing to say.
                        with contextlib.suppress(errors.Error, RuntimeError):
                            sess.run(self.close_op)
                    return
        except Exception as error:  # noqa: BLE001 - who waits for this thread gets it.
            if coord is not None:
                coord.request_stop(error)
            else:
                with self._lock:
                    self._raised.append(error)
        finally:
            if not ended:
                self._left(sess)

    def _left(self, sess: Any) -> int:
        """Counts the end of a thread; how many run."""
        with self._lock:
            self._running[id(sess)] -= 1
            left = self._running[id(sess)]
            if left == 0:
                del self._running[id(sess)]
            return left

    def _close_on_stop(self, sess: Any, coord: Coordinator) -> None:
        coord.wait_for_stop()
        with contextlib.suppress(errors.Error, RuntimeError):
            sess.run(self.cancel_op)


def add_queue_runner(qr: QueueRunner, collection: str = GraphKeys.QUEUE_RUNNERS) -> None:
    """start_queue_runners() starts it."""
    add_to_collection(collection, qr)


def start_queue_runners(
    sess: Any = None,
    coord: Coordinator | None = None,
    daemon: bool = True,
    start: bool = True,
    collection: str = GraphKeys.QUEUE_RUNNERS,
) -> list[threading.Thread]:
    """The threads of all queue runners of the session's graph, started unless told otherwise. sess:
    the default session, if absent."""
    session = need_session() if sess is None else sess
    graph = getattr(session, "graph", None) or get_default_graph()
    return [
        thread
        for runner in graph.get_collection(collection)
        for thread in runner.create_threads(session, coord, daemon=daemon, start=start)
    ]
