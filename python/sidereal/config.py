"""Settings of this process: sidereal.config, with TensorFlow's names (tf.config)."""

from __future__ import annotations

import os

from ._dispatch import ENGINE

__all__ = ["set_operation_timeout", "threading"]


def set_operation_timeout(seconds: float) -> None:
    """How long an op waits at a queue or an accumulator that nobody changes, before it ends with
    DeadlineExceededError; 600 at first (operation_timeout_in_ms of tf.compat.v1.ConfigProto)."""
    if not seconds > 0:
        raise ValueError(f"the timeout is {seconds!r}; it must be above 0")
    ENGINE.set_operation_timeout(float(seconds))


class threading:  # noqa: N801 - tf.config.threading is a module of two functions
    """Threads that ops of this process use (tf.config.threading). Results do not depend on them."""

    @staticmethod
    def set_intra_op_parallelism_threads(num_threads: int) -> None:
        """How many threads may work on one op at once; 0: one for each processor this process may
        run on. One is the default."""
        if isinstance(num_threads, bool) or not isinstance(num_threads, int) or num_threads < 0:
            raise ValueError(f"num_threads is {num_threads!r}; it must be 0 or a number of threads")
        wanted = num_threads or len(os.sched_getaffinity(0))
        ENGINE.set_intra_op_threads(min(wanted, ENGINE.INTRA_OP_THREADS_MAX))

    @staticmethod
    def get_intra_op_parallelism_threads() -> int:
        """How many threads may work on one op at once."""
        return ENGINE.intra_op_threads
