"""Scopes of devices (tf.device), and where variables go (tf.train.replica_device_setter)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from ..cluster_spec import ClusterSpec
from ..device_spec import DeviceSpec
from ..dtypes import as_dtype
from .operation import Operation

DeviceFunction = Callable[[Operation], Any]


def device_text(device: Any) -> str:
    """The name of a device: a DeviceSpec's, a checked and canonical string, "" for None."""
    if device is None:
        return ""
    if isinstance(device, DeviceSpec):
        return device.to_string()
    if isinstance(device, str):
        return DeviceSpec.from_string(device).to_string()
    raise TypeError(
        f"{device!r} ({type(device).__name__}) is no device; give a name, a DeviceSpec, a function "
        "of an operation, or None"
    )


def merged(outer: str, inner: str) -> str:
    """`inner`, and where it leaves a field open that of `outer`."""
    return DeviceSpec.from_string(outer).make_merged_spec(
        DeviceSpec.from_string(inner)
    ).to_string()  # fmt: skip


def device_function(device: Any) -> DeviceFunction | None:
    """What a scope does to an operation: gives its device. None ends the search for outer ones."""
    if device is None:
        return None
    if callable(device) and not isinstance(device, DeviceSpec):
        return device
    outer = device_text(device)
    return lambda op: merged(outer, op.device)


#: Ops that hold state, and go to parameter servers; with TensorFlow's names for the same.
STANDARD_PS_OPS = (
    "Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp", "MutableTable",
    "MutableHashTable", "MutableHashTableV2", "MutableHashTableOfTensors",
    "MutableHashTableOfTensorsV2", "MutableDenseHashTable", "MutableDenseHashTableV2",
    "BoostedTreesEnsembleResourceHandleOp", "BoostedTreesQuantileStreamResourceHandleOp",
)  # fmt: skip

#: What TensorFlow calls ops of this release.
_ALIASES = {
    "Variable": {"Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp"},
    "MutableTable": {
        "MutableTable", "MutableHashTable", "MutableHashTableV2", "MutableHashTableOfTensors",
        "MutableHashTableOfTensorsV2", "MutableDenseHashTable", "MutableDenseHashTableV2",
    },
}  # fmt: skip


class _RoundRobinStrategy:
    """The next task for every operation."""

    def __init__(self, num_tasks: int) -> None:
        self._num_tasks = num_tasks
        self._next = 0

    def __call__(self, op: Operation) -> int:
        task = self._next
        self._next = (task + 1) % self._num_tasks
        return task


class _ReplicaDeviceChooser:
    """Which device an operation gets in between-graph replication."""

    def __init__(
        self, ps_tasks: int, ps_device: str, worker_device: str, merge_devices: bool,
        ps_ops: Sequence[str], ps_strategy: Callable[[Operation], int],
    ) -> None:  # fmt: skip
        self._ps_tasks = ps_tasks
        self._ps_device = ps_device
        self._worker_device = worker_device
        self._merge_devices = merge_devices
        self._ps_ops = set(ps_ops)
        self._ps_strategy = ps_strategy

    def _is_of_ps(self, op: Operation) -> bool:
        kind = op.type
        return bool(_ALIASES.get(kind, {kind}) & self._ps_ops)

    def __call__(self, op: Operation) -> str:
        if not self._merge_devices and op.device:
            return op.device
        current = DeviceSpec.from_string(op.device or "")
        if self._ps_tasks and self._ps_device and self._is_of_ps(op):
            ps = DeviceSpec.from_string(self._ps_device)
            if ps.job and (not current.job or current.job == ps.job):
                ps = ps.replace(task=self._ps_strategy(op))
            return ps.make_merged_spec(current).to_string()
        worker = DeviceSpec.from_string(self._worker_device or "")
        return worker.make_merged_spec(current).to_string()


def replica_device_setter(
    ps_tasks: int = 0,
    ps_device: str = "/job:ps",
    worker_device: str = "/job:worker",
    merge_devices: bool = True,
    cluster: Any = None,
    ps_ops: Sequence[str] | None = None,
    ps_strategy: Callable[[Operation], int] | None = None,
) -> DeviceFunction | None:
    """A function for device() that puts variables and tables on the tasks of `ps_device`, one after
    the other, and all else on `worker_device` (tf.train.replica_device_setter). None, which does
    nothing, when there is no ps.

    cluster: a ClusterSpec, or what one is made of; the number of tasks of the ps job, in the place
        of `ps_tasks`.
    merge_devices: whether operations that ask for a device get the fields they leave open.
    ps_ops: types of operations that go to the ps; STANDARD_PS_OPS if absent.
    ps_strategy: the task of an operation that goes there; round robin if absent.
    """
    if cluster is not None:
        described = ClusterSpec(cluster).as_dict()
        job = DeviceSpec.from_string(ps_device).job
        if not job or job not in described:
            return None
        ps_tasks = len(described[job])
    if ps_tasks == 0:
        return None
    if ps_strategy is None:
        ps_strategy = _RoundRobinStrategy(ps_tasks)
    if not callable(ps_strategy):
        raise TypeError("ps_strategy must be callable")
    ops = STANDARD_PS_OPS if ps_ops is None else ps_ops
    return _ReplicaDeviceChooser(
        ps_tasks, ps_device, worker_device, merge_devices, ops, ps_strategy
    )


def byte_size_load_fn(op: Operation) -> float:
    """Bytes of the variable that an operation holds, for GreedyLoadBalancingStrategy
    (tf.contrib.training.byte_size_load_fn). ValueError for one with several values, or with a shape
    that is not known."""
    if len(op.outputs) != 1:
        raise ValueError(f"Op {op!r} must have a single output")
    if op.type == "Variable":
        attrs = op.node_def.attr
        shape, dtype = attrs.get("shape"), attrs["dtype"]
    else:
        shape, dtype = op.outputs[0].shape, op.outputs[0].dtype
    if shape is None or any(extent is None or extent < 0 for extent in shape):
        raise ValueError(f"the shape of {op!r} is not fully known: {shape}")
    return float(math.prod(shape) * as_dtype(dtype).itemsize)


class GreedyLoadBalancingStrategy:
    """The task with the smallest sum of loads so far, the first of equal ones
    (tf.contrib.training.GreedyLoadBalancingStrategy). `load_fn` is the load of an operation, such
    as byte_size_load_fn."""

    def __init__(self, num_tasks: int, load_fn: Callable[[Operation], float]) -> None:
        self._loads = [0.0] * num_tasks
        self._load_fn = load_fn

    def __call__(self, op: Operation) -> int:
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_fn(op)
        return task


class RandomStrategy:
    """A task by the hash of the operation's name and a seed: the same in every process
    (tf.contrib.training.RandomStrategy)."""

    def __init__(self, num_tasks: int, seed: int = 0) -> None:
        self._num_tasks = num_tasks
        self._seed = seed

    def __call__(self, op: Operation) -> int:
        text = f"{op.name}_{self._seed}".encode()
        return int(hashlib.md5(text, usedforsecurity=False).hexdigest(), 16) % self._num_tasks
