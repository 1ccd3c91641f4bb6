"""Servers: the members of a cluster that runs sessions (tf.distribute.Server)."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

from . import _native, errors
from .cluster_spec import ClusterDef, ClusterDeviceFilters, ClusterSpec
from .security import SecurityOptions

#: How often join() lets Python handle signals, in seconds.
_LOOK_S = 0.2


#: Servers that may run, which end before Python does: its functions may run there.
_running: weakref.WeakSet[Server] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for server in list(_running):
        server.stop()


def job_user() -> str:
    """The user that is shown for jobs of this program; "": the user of the process."""
    return os.environ.get("SIDEREAL_USER", "")


def session_options(config: Any) -> dict[str, Any]:
    """What the core is told of a ConfigProto."""
    return {
        "allow_soft_placement": config.allow_soft_placement,
        "log_device_placement": config.log_device_placement,
        "device_filters": config.device_filters,
        "operation_timeout_in_ms": config.operation_timeout_in_ms,
        "isolate_session_state": config.isolate_session_state,
        "state_group": config.state_group,
        "lease_name": config.lease_name,
        "take_over": config.take_over,
        "job_user": job_user(),
        "compute_dtype": config.compute_dtype,
        "tensor_fuse": config.tensor_fuse,
        "pull_prefetch_ms": config.pull_prefetch_ms,
        "connect_timeout_in_ms": config.connect_timeout_in_ms,
        "overrides": config._overrides,
    }


@dataclass(repr=False)
class ServerDef:
    """What a server is (tf.train.ServerDef).

    cluster: who is in its cluster. job_name, task_index: which of them it is. protocol: how steps
    travel; "": as TF_CONFIG says, or "grpc". default_session_config: a sidereal.v1.ConfigProto, for
    what clients of this server leave at its default: soft placement, timeout, filters, isolation,
    compute_dtype, tensor_fuse, pull_prefetch_ms. cluster_device_filters: which devices of others
    the tasks see as masters; all, if absent. The others: as the arguments of Server.
    """

    cluster: ClusterDef = field(default_factory=ClusterDef)
    job_name: str = ""
    task_index: int = 0
    protocol: str = ""
    default_session_config: Any = None
    cluster_device_filters: ClusterDeviceFilters | None = None
    endpoint_map_path: str | None = None
    lanes: int | None = None
    polling: bool | None = None
    spin_us: int | None = None
    pin_cores: bool | None = None
    connect_deadline_ms: int | None = None
    shared_memory: bool | None = None
    replicas: int | None = None
    min_insync_replicas: int | None = None

    def __str__(self) -> str:
        cluster = "".join(f"  {line}\n" for line in str(self.cluster).splitlines())
        index = f"task_index: {self.task_index}\n" if self.task_index else ""
        protocol = f'protocol: "{self.protocol}"\n' if self.protocol else ""
        return f'cluster {{\n{cluster}}}\njob_name: "{self.job_name}"\n{index}{protocol}'

    __repr__ = __str__


#: Members of a ServerDef that say how lanes work, where data ports are, and what has copies.
_SETTINGS = (
    "endpoint_map_path",
    "lanes",
    "polling",
    "spin_us",
    "pin_cores",
    "connect_deadline_ms",
    "shared_memory",
    "replicas",
    "min_insync_replicas",
)


def _agreed_protocol(given: str | None) -> str:
    """What the caller and TF_CONFIG say; "grpc" when neither does."""
    config = os.environ.get("TF_CONFIG", "")
    rpc_layer = _native.rpc_layer_of(config) if config else ""
    return _native.agree_on_protocol(given or "", rpc_layer, "TF_CONFIG") or "grpc"


def _effective(
    given: Any,
    job_name: str | None,
    task_index: int | None,
    protocol: str | None,
    config: Any,
    settings: dict[str, Any],
) -> ServerDef:
    """The definition of a server from the arguments of its constructor."""
    filters = None
    if isinstance(given, ServerDef):
        filters = given.cluster_device_filters
        made = ServerDef(**vars(given))
        job_name = made.job_name if job_name is None else job_name
        task_index = made.task_index if task_index is None else task_index
        protocol = made.protocol if protocol is None else protocol
        if made.default_session_config is not None and config is not None:
            config = made.default_session_config.merged(config)
        config = made.default_session_config if config is None else config
        cluster = ClusterSpec(made.cluster)
        settings = {
            name: getattr(made, name) if settings[name] is None else settings[name]
            for name in _SETTINGS
        }
    else:
        try:
            cluster = ClusterSpec(given)
        except TypeError as error:
            raise TypeError(
                "a server is made of a ServerDef, a ClusterDef, a ClusterSpec or a dict; "
                f"{given!r} is none: {error}"
            ) from None
    if not job_name:
        if len(cluster.jobs) != 1:
            raise ValueError("Must specify an explicit `job_name`.")
        job_name = cluster.jobs[0]
    if task_index is None:
        indices = cluster.task_indices(job_name)
        if len(indices) != 1:
            raise ValueError("Must specify an explicit `task_index`.")
        task_index = indices[0]
    protocol = _agreed_protocol(protocol)
    described = cluster.as_cluster_def()
    return ServerDef(described, job_name, int(task_index), protocol, config, filters, **settings)


class Server:
    """A member of a cluster, in this process: it has a device, "/job:J/task:I/device:CPU:0", on
    which sessions of every member's clients run their nodes, and it is a master for sessions that
    are made with its `target`.

        cluster = sr.train.ClusterSpec({"local": ["localhost:2222", "localhost:2223"]})
        server = sr.train.Server(cluster, job_name="local", task_index=0)
        server.join()

    server_or_cluster_def: a ServerDef, or the cluster. job_name, task_index: which member it is;
        may be left out where there is one. What is given here goes before what a ServerDef says.
    protocol: how steps travel, the same for all members: "grpc"; "grpc++", from lane to lane;
        "star_server" and "star_server_lite", where one task drives a step and calls the others. By
        default the "rpc_layer" of TF_CONFIG, or else "grpc".
    config: a sidereal.v1.ConfigProto: threads of the server
        (intra_op_parallelism_threads), and what its clients' sessions leave at the default. Beside
        a ServerDef: merged into its default_session_config (ConfigProto.merged()).
    start: whether it starts at once.
    security: who may connect (SecurityOptions); by default the secret of the environment
        (SIDEREAL_SECRET_FILE), or else this machine only.
    listen: "host:port" to listen at, if that is not the member's address.

    Of the data port, which all protocols but "grpc" have. Where nothing is given the environment
    says it, by the variables named here (WORKER_* for the jobs worker and chief, PS_* for others),
    and the server logs at its start what it uses, and who said so:
    endpoint_map_path: the folder of a file ".endpoint_map" with data ports
        (TF_SEASTAR_ENDPOINT_MAP_PATH); the working directory's, if there is one.
    lanes: threads that run steps (NETWORK_WORKER_CORE_NUMBER, NETWORK_PS_CORE_NUMBER).
    polling: True: lanes never sleep; False: they learn when to (WORKER_ENABLE_POLLING,
        PS_ENABLE_POLLING). Or spin_us: microseconds they look for work before they sleep.
    pin_cores: whether each lane keeps to a processor of its own (not WORKER_DISABLE_PIN_CORES,
        PS_DISABLE_PIN_CORES).
    connect_deadline_ms: for a connection to another task (NETWORK_MAX_CONNECTION_TIMEOUT).
    shared_memory: False: tasks of this host talk over TCP as well. True, the default: through
        memory that they share, where both say so and belong to one user.

    replicas: copies of its variables, with its own; the others are synchronous standbys in other
        tasks of the job, which all say the same (PS_REPLICAS for the job ps). 1: there are none.
    min_insync_replicas: of these, what must have a push before it is answered: with fewer in sync
        pushes wait (PS_MIN_INSYNC_REPLICAS for the job ps). 1: they wait for those that are.

    Errors: TypeError and ValueError for arguments; InvalidArgumentError for an address without a
    port; UnknownError ("Could not start gRPC server") for a port in use; FailedPreconditionError
    off loopback without security.
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: Any = None,
        start: bool = True,
        *,
        security: SecurityOptions | None = None,
        listen: str = "",
        endpoint_map_path: str | None = None,
        lanes: int | None = None,
        polling: bool | None = None,
        spin_us: int | None = None,
        pin_cores: bool | None = None,
        connect_deadline_ms: int | None = None,
        shared_memory: bool | None = None,
        replicas: int | None = None,
        min_insync_replicas: int | None = None,
    ) -> None:
        settings = {
            "endpoint_map_path": endpoint_map_path,
            "lanes": lanes,
            "polling": polling,
            "spin_us": spin_us,
            "pin_cores": pin_cores,
            "connect_deadline_ms": connect_deadline_ms,
            "shared_memory": shared_memory,
            "replicas": replicas,
            "min_insync_replicas": min_insync_replicas,
        }
        self._def = _effective(
            server_or_cluster_def, job_name, task_index, protocol, config, settings
        )
        self._security = SecurityOptions.from_environment() if security is None else security
        self._listen = listen
        self._native: _native.Server | None = None
        self._lock = threading.Lock()
        if start:
            self.start()

    @staticmethod
    def create_local_server(config: Any = None, start: bool = True) -> Server:
        """A cluster of one task, "/job:localhost/task:0", at a free port of this machine."""
        return Server({"localhost": ["localhost:0"]}, config=config, start=start)

    @property
    def server_def(self) -> ServerDef:
        """What it is; once it has started, with the port it listens at."""
        return self._def

    @property
    def target(self) -> str:
        """What sessions are made with: "grpc://host:port"."""
        if self._native is not None:
            return self._native.target
        address = ClusterSpec(self._def.cluster).task_address(
            self._def.job_name, self._def.task_index
        )
        if address.rpartition(":")[2] == "0":
            raise errors.FailedPreconditionError(
                "the server has no port before it starts: call start()"
            )
        return f"grpc://{address}"

    def start(self) -> None:
        """Starts it; does nothing when it runs. After stop(), at the port it had."""
        with self._lock:
            if self._native is not None and not self._native.join(0):
                return
            config = self._def.default_session_config
            given = self._def.cluster_device_filters or ClusterDeviceFilters()
            filters = given.device_filters(self._def.job_name, self._def.task_index)
            self._native = _native.Server.create(
                ClusterSpec(self._def.cluster)._native,
                self._def.job_name,
                self._def.task_index,
                listen=self._listen,
                security=self._security._to_native(),
                intra_op_threads=getattr(config, "intra_op_parallelism_threads", 0) or 1,
                device_filters=filters,
                session_defaults=None if config is None else session_options(config),
                protocol=self._def.protocol,
                **{name: getattr(self._def, name) for name in _SETTINGS},
            )
            _running.add(self)
            cluster = ClusterSpec(json.loads(self._native.cluster.to_json()))
            self._def.cluster = cluster.as_cluster_def()

    def join(self, timeout: float | None = None) -> bool:
        """Waits until the server is stopped, for `timeout` seconds at most: False when they have
        passed."""
        if self._native is None:
            raise errors.FailedPreconditionError("the server has not been started: call start()")
        left = float("inf") if timeout is None else timeout
        while left > _LOOK_S:
            if self._native.join(_LOOK_S):
                return True
            left -= _LOOK_S
        return self._native.join(max(left, 0))

    def stop(self, grace: float = 0) -> None:
        """Ends the server: takes nothing new, gives steps that run `grace` seconds to end, and ends
        what is left with CancelledError."""
        if self._native is not None:
            self._native.stop(grace)

    def __del__(self) -> None:
        # Not left to the core, which ends under Python's lock: functions of Python may run there.
        with contextlib.suppress(Exception):
            self.stop()

    def __repr__(self) -> str:
        return f"<Server '/job:{self._def.job_name}/task:{self._def.task_index}'>"


__all__ = ["Server", "ServerDef"]
