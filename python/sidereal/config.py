"""Settings of this process: sidereal.config, with TensorFlow's names (tf.config)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import errors
from ._dispatch import ENGINE

__all__ = [
    "LogicalDevice", "PhysicalDevice", "experimental_run_functions_eagerly",
    "functions_run_eagerly", "get_visible_devices", "list_logical_devices",
    "list_physical_devices", "run_functions_eagerly", "set_operation_timeout",
    "set_soft_device_placement", "set_visible_devices", "threading",
]  # fmt: skip


class PhysicalDevice(NamedTuple):
    """What ops may run on: there is one, this process's processors (tf.config.PhysicalDevice)."""

    name: str
    device_type: str


class LogicalDevice(NamedTuple):
    """As PhysicalDevice, by the name that tensors tell (tf.config.LogicalDevice)."""

    name: str
    device_type: str


_PHYSICAL = PhysicalDevice("/physical_device:CPU:0", "CPU")
_LOGICAL = LogicalDevice("/device:CPU:0", "CPU")
_run = {"eagerly": False}


def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """The devices of this process, of one type if that is given: no GPU."""
    return [_PHYSICAL] if device_type in (None, "CPU") else []


def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """As list_physical_devices(), by the names that tensors tell."""
    return [_LOGICAL] if device_type in (None, "CPU") else []


def get_visible_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """As list_physical_devices()."""
    return list_physical_devices(device_type)


def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Takes what is there, and no GPU. InvalidArgumentError for anything else."""
    wanted = devices if isinstance(devices, Sequence) else [devices]
    if list(wanted) != list_physical_devices(device_type):
        raise errors.InvalidArgumentError(
            f"{devices} cannot be chosen: there is {_PHYSICAL.name}, which is always used"
        )


def set_soft_device_placement(enabled: bool) -> None:
    """Takes TensorFlow's switch; ops of this process have one place to run."""


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Whether a sidereal.function that is called runs its Python code at once, op by op, to be
    looked at with a debugger. What a coordinator schedules runs as a program in any case."""
    _run["eagerly"] = bool(run_eagerly)


def functions_run_eagerly() -> bool:
    """What run_functions_eagerly() was told last."""
    return _run["eagerly"]


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


experimental_run_functions_eagerly = run_functions_eagerly
