"""Clusters to train on."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from types import TracebackType

from . import _hot_rows, _native
from ._hot_rows import HotRow
from ._usage import whole
from .cluster_spec import ClusterDict, ClusterSpec
from .errors import FailedPreconditionError, NotFoundError
from .security import SecurityOptions


def program_path() -> str:
    """The `sidereal` program that belongs to this package: in the wheel beside the extension, in a
    build tree in its bin folder."""
    package = Path(_native.__file__).parent
    for candidate in (package / "bin" / "sidereal", package.parent.parent / "bin" / "sidereal"):
        if os.access(candidate, os.X_OK):
            return str(candidate)
    raise NotFoundError(
        f"the program 'sidereal' is not beside the extension in {package}; build it "
        "(./dev build sidereal) or install the package again (pip install .)"
    )


class Cluster:
    """The tasks of a running cluster. A context manager: leaving it stops the cluster.

    Models trained on it at the same time have variables of their own, which go with them."""

    def __init__(self, native: _native.Cluster) -> None:
        self._native = native
        self._stopped = False
        # Tasks end when the object or the program ends, whether or not stop() was called.
        self._finalizer = weakref.finalize(self, native.stop)

    @property
    def ps(self) -> list[str]:
        """Addresses of the parameter servers."""
        return self._native.ps

    @property
    def worker(self) -> list[str]:
        """Addresses of the workers."""
        return self._native.worker

    @property
    def stopped(self) -> bool:
        """True after stop()."""
        return self._stopped

    def check_alive(self) -> None:
        """Raises UnavailableError naming the task if one is known to be lost; never waits."""
        self._require_running()
        self._native.check_alive()

    def hot_rows(self, rows: int = 10, *, parts: str = "modulo") -> list[HotRow]:
        """The rows of each table that steps of the last minutes pulled or pushed most, at most
        `rows` of each (100 are told): those first that have most, of the table first where that is
        most. A row that is no more than chance is left out.

        parts: what variables NAME/part_0, NAME/part_1 ... are: "modulo": one table, as of a Model;
        "blocks": one table, as of partitioners; "apart": tables of their own. InvalidArgumentError
        for others. UnavailableError or DeadlineExceededError when nobody says who is in the
        cluster; of tasks that do not answer nothing is told."""
        self._require_running()
        return _hot_rows.of_cluster(f"grpc://{self.ps[0]}", self._security(), rows, parts)

    def _security(self) -> SecurityOptions:
        return SecurityOptions(secret=self._native.secret)

    def stop(self) -> None:
        """Stops every task this object started. May be called again."""
        self._stopped = True
        self._finalizer.detach()
        self._native.stop()

    def __enter__(self) -> Cluster:
        self._require_running()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.stop()
            return
        try:
            self.stop()
        except Exception as stopping:  # noqa: BLE001 - the error of the block is the one to see
            if hasattr(error, "add_note"):
                error.add_note(f"while the cluster stopped: {stopping}")

    def __repr__(self) -> str:
        state = ", stopped" if self._stopped else ""
        return f"{type(self).__name__}({len(self.ps)} ps, {len(self.worker)} workers{state})"

    def _require_running(self) -> None:
        if self._stopped:
            raise FailedPreconditionError("the cluster has been stopped; start another one")


class LocalCluster(Cluster):
    """Parameter servers and workers on this machine, on loopback, each a process of its own.

    ps, workers: number of tasks. ps_lanes: threads of each ps, which own parts of tables;
    worker_lanes: steps at once in each worker. protocol: how they talk: "star_server",
    "star_server_lite", "grpc++" or "grpc". in_process: servers live in this process (tests,
    debugging).
    spin_us: how long a thread looks before it sleeps; None: chosen from the processors there are.
    start_deadline_s: seconds all tasks together have to come up.
    on_ps_loss: "restore": a parameter server or worker that is killed is started again at its
    address, at most `restarts` times in ten minutes; it has no variables then. One that has
    answered, and then answers nothing for `silence_s`, is killed first. "fail": the cluster has
    lost it.
    replicas: copies of the variables of each parameter server, with its own: the others are
    synchronous standbys in other parameter servers. One that is started again takes from there what
    it had. min_insync_replicas: of these, what must have a push before it is answered: with fewer
    in sync pushes wait, so that what was answered is not lost with any one server.
    event_dir: a folder, which is made, of files with what happens to the tasks, for `sidereal
    events --file`; they last when tasks are gone.
    """

    def __init__(
        self,
        ps: int = 1,
        workers: int = 1,
        *,
        ps_lanes: int = 1,
        worker_lanes: int = 1,
        protocol: str = "star_server",
        in_process: bool = False,
        spin_us: int | None = None,
        start_deadline_s: float = 30.0,
        on_ps_loss: str = "fail",
        restarts: int = 5,
        silence_s: float = 10.0,
        replicas: int = 1,
        min_insync_replicas: int = 1,
        event_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        ps = whole("LocalCluster", "ps", ps)
        workers = whole("LocalCluster", "workers", workers)
        ps_lanes = whole("LocalCluster", "ps_lanes", ps_lanes)
        worker_lanes = whole("LocalCluster", "worker_lanes", worker_lanes)
        if on_ps_loss not in ("fail", "restore"):
            raise ValueError(f"on_ps_loss is {on_ps_loss!r}; it is 'fail' or 'restore'")
        if in_process and on_ps_loss == "restore":
            raise ValueError("on_ps_loss='restore' is for servers in processes of their own")
        super().__init__(
            _native.start_local_cluster(
                ps=ps,
                workers=workers,
                ps_lanes=ps_lanes,
                worker_lanes=worker_lanes,
                protocol=protocol,
                spin_us=-2 if spin_us is None else spin_us,
                in_process=in_process,
                program="" if in_process else program_path(),
                start_deadline_s=start_deadline_s,
                restarts=on_ps_loss == "restore",
                restarts_max=restarts,
                silence_s=silence_s,
                replicas=whole("LocalCluster", "replicas", replicas),
                min_insync_replicas=whole(
                    "LocalCluster", "min_insync_replicas", min_insync_replicas
                ),
                event_dir="" if event_dir is None else os.fspath(event_dir),
            )
        )

    @property
    def security(self) -> SecurityOptions:
        """What the servers want of who calls them: the secret that was made for them."""
        return SecurityOptions(secret=self._native.secret)


class RemoteCluster(Cluster):
    """A cluster that is already running (`sidereal serve`); stop() leaves it running.

    spec: {"ps": ["host:port", ...], "worker": [...]} as a ClusterSpec, a dict or JSON. Arrays
    handed to Model.fit() reach workers on this machine only; files must be where the workers can
    read them.

    security: what the servers want of who calls them; None: the secret of the environment
    (SIDEREAL_SECRET_FILE, SIDEREAL_SECRET), or nothing.
    """

    def __init__(
        self, spec: ClusterSpec | ClusterDict | str, *, security: SecurityOptions | None = None
    ) -> None:
        options = SecurityOptions.from_environment() if security is None else security
        text = spec if isinstance(spec, str) else ClusterSpec(spec).to_json()
        super().__init__(_native.remote_cluster(text, options._to_native()))
        #: What its servers want of who calls them.
        self.security = options

    def _security(self) -> SecurityOptions:
        return self.security
