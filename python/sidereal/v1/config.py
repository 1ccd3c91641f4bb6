"""Options of sessions (tf.compat.v1.ConfigProto)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._native import GraphBase
from ..device_spec import DeviceSpec
from ..function import checked_compute_dtype
from ..security import SecurityOptions


class _Options:
    """Named values with defaults; a name that is none of them is a TypeError."""

    _defaults: dict[str, Any] = {}

    def __init__(self, **values: Any) -> None:
        for name, default in self._defaults.items():
            setattr(self, name, default() if isinstance(default, type) else default)
        for name, value in values.items():
            if name not in self._defaults:
                known = ", ".join(self._defaults)
                raise TypeError(f"{type(self).__name__} has no '{name}'; it has: {known}")
            setattr(self, name, value)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._defaults)
        return f"{type(self).__name__}({values})"

    def merged(self, other: _Options) -> _Options:
        """Its values, but those of `other` that are not at their default."""
        return type(self)(**vars(self) | other._changed())

    def _changed(self) -> dict[str, Any]:
        plain = vars(type(self)())
        return {name: value for name, value in vars(self).items() if value != plain[name]}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class OptimizerOptions(_Options):
    """Which optimisations of a graph are made: all of them, in this release."""

    L1, L0 = 0, -1
    _defaults = {"opt_level": 0, "do_common_subexpression_elimination": True,
                 "do_constant_folding": True}  # fmt: skip


class GraphOptions(_Options):
    """Options of how graphs run."""

    _defaults = {"optimizer_options": OptimizerOptions, "enable_recv_scheduling": True,
                 "place_pruned_graph": False, "build_cost_model": 0}  # fmt: skip


class GPUOptions(_Options):
    """Options of GPUs, which this release has not; taken and not used."""

    _defaults = {"allow_growth": False, "per_process_gpu_memory_fraction": 0.0,
                 "visible_device_list": ""}  # fmt: skip


class Experimental(_Options):
    """Options of TensorFlow's field `experimental`."""

    _defaults = {"collective_group_leader": "", "share_session_state_in_clusterspec_propagation":
                 False, "disable_output_partition_graphs": False}  # fmt: skip


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {value!r}; it must be a number from 0 on")
    return value


class ConfigProto:
    """Options of a session (tf.compat.v1.ConfigProto).

    allow_soft_placement: whether a device that is not there is replaced by another of its task.
    log_device_placement: whether the session says which node runs where.
    device_filters: names of devices, or parts: of other tasks, only those are used.
    operation_timeout_in_ms: how long a run may wait for others; 0: for the time that
        sidereal.config.set_operation_timeout() says.
    isolate_session_state: whether a session on a server has variables of its own.
    state_group: variables on servers are those of all sessions that say the same name, from the
        first to the last of them; "": those of all sessions that say none.
    lease_name: the session is the job of that name on its cluster, of which one runs at a time: if
        another program runs it, AlreadyExistsError says who, and since when. "": it is none.
    take_over: with lease_name, the one that runs ends, and this session takes its place.
    intra_op_parallelism_threads: threads that may work on one op; 0: as sidereal.config says.
    inter_op_parallelism_threads: taken and not used: a task runs one op at a time.
    compute_dtype: what products of float32 matrices are computed in; see sidereal.function().
    connect_timeout_in_ms: how long a session waits for its server and the tasks its graph needs.
    security: how servers know the session's client; by default as the environment says.
    tensor_fuse: whether tensors that one task has for another at the same time are one message,
        over grpc and grpc++; the star_server protocols make no use of it.
    pull_prefetch_ms: over star_server_lite, what a step pulls may have been asked for so many
        milliseconds before it began, when the step before it ended, where the graph allows it: it
        misses at most what other workers have pushed since then. None: as the server was told, else
        200. 0: never, and a step ends when all that it changed is there for everybody.
    """

    Experimental = Experimental
    #: Where variables are that have moved, by device, and tasks in the places of others. Of
    #: sessions of a strategy, which says it.
    _overrides: tuple[dict[str, str], dict[str, str]] = ({}, {})
    #: Where variables are that move, as a session_moves.Places knows it. Of monitored sessions.
    _places: Any = None
    #: What makes of a graph that which servers run. Of sessions with copies of variables.
    _redirected: Callable[[GraphBase], GraphBase] | None = None

    def __init__(
        self,
        *,
        allow_soft_placement: bool = False,
        log_device_placement: bool = False,
        device_filters: Sequence[str] = (),
        operation_timeout_in_ms: int = 0,
        isolate_session_state: bool = False,
        state_group: str = "",
        lease_name: str = "",
        take_over: bool = False,
        intra_op_parallelism_threads: int = 0,
        inter_op_parallelism_threads: int = 0,
        use_per_session_threads: bool = False,
        device_count: dict[str, int] | None = None,
        graph_options: GraphOptions | None = None,
        gpu_options: GPUOptions | None = None,
        experimental: Any = None,
        compute_dtype: Any = "float32",
        tensor_fuse: bool = False,
        pull_prefetch_ms: int | None = None,
        connect_timeout_in_ms: int = 600_000,
        security: SecurityOptions | None = None,
    ) -> None:
        self.allow_soft_placement = bool(allow_soft_placement)
        self.log_device_placement = bool(log_device_placement)
        self.device_filters = [DeviceSpec.from_string(name).to_string() for name in device_filters]
        self.operation_timeout_in_ms = _count("operation_timeout_in_ms", operation_timeout_in_ms)
        self.isolate_session_state = bool(isolate_session_state)
        self.state_group = str(state_group)
        self.lease_name = str(lease_name)
        self.take_over = bool(take_over)
        if self.take_over and not self.lease_name:
            raise ValueError("take_over is True and there is no lease_name of what is taken over")
        self.intra_op_parallelism_threads = _count(
            "intra_op_parallelism_threads", intra_op_parallelism_threads
        )
        self.inter_op_parallelism_threads = _count(
            "inter_op_parallelism_threads", inter_op_parallelism_threads
        )
        self.use_per_session_threads = bool(use_per_session_threads)
        self.device_count = dict(device_count or {})
        self.graph_options = graph_options or GraphOptions()
        self.gpu_options = gpu_options or GPUOptions()
        self.experimental = experimental or Experimental()
        self.compute_dtype = checked_compute_dtype(compute_dtype)
        self.tensor_fuse = bool(tensor_fuse)
        self.pull_prefetch_ms = (
            None if pull_prefetch_ms is None else _count("pull_prefetch_ms", pull_prefetch_ms)
        )
        self.connect_timeout_in_ms = _count("connect_timeout_in_ms", connect_timeout_in_ms)
        self.security = security

    def merged(self, other: ConfigProto) -> ConfigProto:
        """A new one as protobuf's MergeFrom() makes it: values of `other` that are not at their
        default, lists one after the other, and groups of options value by value."""
        plain = vars(ConfigProto())
        out = dict(vars(self))
        for name, value in vars(other).items():
            if isinstance(value, _Options):
                out[name] = out[name].merged(value)
            elif isinstance(value, list):
                out[name] = out[name] + value
            elif isinstance(value, dict):
                out[name] = out[name] | value
            elif value != plain[name]:
                out[name] = value
        return ConfigProto(**out)

    def __repr__(self) -> str:
        return f"ConfigProto({', '.join(f'{n}={v!r}' for n, v in vars(self).items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigProto) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]
