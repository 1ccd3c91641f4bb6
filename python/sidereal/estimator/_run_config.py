"""What an estimator is told of its task, cluster and checkpoints (tf.estimator.RunConfig)."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from .. import _native
from ..cluster_spec import ClusterSpec
from ..v1.config import ConfigProto
from ..v1.consistency import hooks_of


class TaskType:
    """Jobs of a cluster of estimators."""

    MASTER = "master"
    PS = "ps"
    WORKER = "worker"
    CHIEF = "chief"
    EVALUATOR = "evaluator"


_JOBS = (TaskType.CHIEF, TaskType.MASTER, TaskType.WORKER, TaskType.PS, TaskType.EVALUATOR)

#: That the caller said nothing: 600 seconds between checkpoints, unless steps are given.
_USE_DEFAULT: Any = object()
_DEFAULT_SECS = 600

#: What replace() takes.
_REPLACEABLE = (
    "model_dir", "tf_random_seed", "save_summary_steps", "save_checkpoints_steps",
    "save_checkpoints_secs", "session_config", "keep_checkpoint_max",
    "keep_checkpoint_every_n_hours", "log_step_count_steps", "device_fn", "protocol",
    "session_creation_timeout_secs", "checkpoint_save_graph_def", "consistency",
    "movable", "autoscale",
)  # fmt: skip


class RunConfig:
    """Where a training runs, and how often it saves (tf.estimator.RunConfig). The environment
    variable TF_CONFIG says which task of which cluster this process is:

        {"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222"], "ps": ["host2:2222"]},
         "task": {"type": "worker", "index": 0}}

    Without it everything happens in this process. The task "evaluator" is in no cluster.

    model_dir: the folder of checkpoints; it may be said in TF_CONFIG, else the estimator says it.
    tf_random_seed: of random ops and first values; None: they differ in each run.
    save_summary_steps, log_step_count_steps: every how many steps summaries are written and the
        speed is logged; None: never.
    save_checkpoints_steps, save_checkpoints_secs: every how many steps, or seconds (600 if neither
        is given), the chief saves; None: never.
    session_config: a sidereal.v1.ConfigProto for its sessions.
    keep_checkpoint_max: how many checkpoints stay; 0 or None: all.
    keep_checkpoint_every_n_hours: one in so many hours stays for ever.
    device_fn: a function of an operation that gives its device, in the place of
        replica_device_setter().
    protocol: how steps travel in the cluster: "grpc", "grpc++", "star_server" or
        "star_server_lite"; TF_CONFIG may say it as "rpc_layer".
    session_creation_timeout_secs: how long a worker waits for the chief to initialise the model.
    checkpoint_save_graph_def: whether the graph is written beside checkpoints.
    consistency: "async", "bounded(s)" or "geo(k)": what steps of a worker see of those of others;
        see sidereal.v1.train.MonitoredTrainingSession. All tasks say the same.
    movable: variables go to other parameter servers while it trains, as commands say; see there,
        too. All tasks say the same.
    autoscale: "2-8": with `movable`, the least and the most parameter servers that it is on.
    """

    _model_dir: str | None
    _tf_random_seed: int | None
    _save_summary_steps: int | None
    _save_checkpoints_steps: int | None
    _save_checkpoints_secs: float | None
    _session_config: ConfigProto | None
    _keep_checkpoint_max: int | None
    _keep_checkpoint_every_n_hours: float
    _log_step_count_steps: int | None
    _device_fn: Callable[[Any], str] | None
    _protocol: str | None
    _session_creation_timeout_secs: float
    _checkpoint_save_graph_def: bool
    _consistency: str
    _movable: bool
    _autoscale: str

    def __init__(
        self,
        model_dir: str | os.PathLike[str] | None = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_steps: int | None = _USE_DEFAULT,
        save_checkpoints_secs: float | None = _USE_DEFAULT,
        session_config: ConfigProto | None = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000,
        log_step_count_steps: int | None = 100,
        train_distribute: Any = None,
        device_fn: Callable[[Any], str] | None = None,
        protocol: str | None = None,
        eval_distribute: Any = None,
        experimental_distribute: Any = None,
        experimental_max_worker_delay_secs: int | None = None,
        session_creation_timeout_secs: float = 7200,
        checkpoint_save_graph_def: bool = True,
        *,
        consistency: str = "async",
        movable: bool = False,
        autoscale: str = "off",
    ) -> None:
        for what, given in (
            ("train_distribute", train_distribute), ("eval_distribute", eval_distribute),
            ("experimental_distribute", experimental_distribute),
        ):  # fmt: skip
            if given is not None:
                raise ValueError(
                    f"RunConfig({what}=...): estimators are distributed by TF_CONFIG, with a ps "
                    "and workers of its cluster, and take no strategy; see "
                    "sidereal.distribute.ParameterServerStrategy for programs that have one"
                )
        if save_checkpoints_steps is _USE_DEFAULT and save_checkpoints_secs is _USE_DEFAULT:
            save_checkpoints_steps, save_checkpoints_secs = None, _DEFAULT_SECS
        elif save_checkpoints_secs is _USE_DEFAULT:
            save_checkpoints_secs = None
        elif save_checkpoints_steps is _USE_DEFAULT:
            save_checkpoints_steps = None
        described = _tf_config()
        said = described.get("model_dir")
        given_dir = None if model_dir is None else os.fspath(model_dir)
        if said == "":
            raise ValueError("model_dir should be non-empty")
        if given_dir is not None and said is not None and said != given_dir:
            raise ValueError(
                "`model_dir` provided in RunConfig construct, if set, must have the same value as "
                f"the model_dir in TF_CONFIG; they are {given_dir} and {said}"
            )
        text = os.environ.get("TF_CONFIG", "")
        layer = _native.rpc_layer_of(text) if text else ""
        self._take(
            model_dir=said if given_dir is None else given_dir,
            tf_random_seed=tf_random_seed,
            save_summary_steps=save_summary_steps,
            save_checkpoints_steps=save_checkpoints_steps,
            save_checkpoints_secs=save_checkpoints_secs,
            session_config=session_config,
            keep_checkpoint_max=keep_checkpoint_max,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            log_step_count_steps=log_step_count_steps,
            device_fn=device_fn,
            protocol=_native.agree_on_protocol(protocol or "", layer, "TF_CONFIG") or None,
            session_creation_timeout_secs=session_creation_timeout_secs,
            checkpoint_save_graph_def=bool(checkpoint_save_graph_def),
            consistency=consistency,
            movable=bool(movable),
            autoscale=autoscale,
        )
        self._take_task(described)

    def _take(self, **values: Any) -> None:
        """Keeps the values that a program chooses, once they are checked."""
        _check(**values)
        for name in _REPLACEABLE:
            setattr(self, f"_{name}", values[name])

    def _take_task(self, described: Mapping[str, Any]) -> None:
        """Who this process is in which cluster."""
        task = described.get("task", {})
        if not isinstance(task, Mapping):
            raise ValueError(f"TF_CONFIG: 'task' is {task!r}; it must be a type and an index")
        cluster = ClusterSpec(described.get("cluster", {}))
        self._service = described.get("service")
        self._task_type = str(task.get("type", "")) or None
        self._task_id = 0
        self._global_id: int | None = 0
        self._cluster_spec = cluster
        if not cluster and self._task_type != TaskType.EVALUATOR:
            # All in this process.
            if self._task_type not in (None, TaskType.WORKER, TaskType.CHIEF, TaskType.MASTER):
                raise ValueError(
                    f"TF_CONFIG: the task type '{self._task_type}' needs a \"cluster\""
                )
            self._task_type = TaskType.WORKER
            self._task_id = int(task.get("index", 0))
            if self._task_id != 0:
                raise ValueError(
                    'If "cluster" is not set in TF_CONFIG, task index must be 0; it is '
                    f"{self._task_id}"
                )
            self._master = self._evaluation_master = ""
            self._num_ps_replicas, self._num_worker_replicas = 0, 1
            self._is_chief = True
            return
        self._check_cluster(cluster, task)
        self._task_id = int(task["index"]) if "index" in task else 0
        if self._task_type == TaskType.EVALUATOR:
            if self._task_id != 0:
                raise ValueError(f"the index of an evaluator is 0, not {self._task_id}")
            self._cluster_spec = ClusterSpec({})
            self._master = ""
            self._evaluation_master = str(described.get("eval_session_master", ""))
            self._num_ps_replicas = self._num_worker_replicas = 0
            self._is_chief, self._global_id = False, None
            return
        first = self._first_job()
        address = cluster.task_address(str(self._task_type), self._task_id)
        alone = sum(cluster.num_tasks(job) for job in cluster.jobs) == 1
        # A chief that is alone needs no server.
        here = "" if alone and self._task_type == first else f"grpc://{address}"
        self._master = str(described.get("session_master", here))
        self._evaluation_master = str(described.get("eval_session_master", ""))
        self._num_ps_replicas = _count(cluster, TaskType.PS)
        self._num_worker_replicas = 1 + _count(cluster, TaskType.WORKER)
        self._is_chief = self._task_type == first
        order = [first, TaskType.WORKER, TaskType.PS]
        before = sum(_count(cluster, job) for job in order[: order.index(str(self._task_type))])
        self._global_id = before + self._task_id

    def _first_job(self) -> str:
        return TaskType.MASTER if TaskType.MASTER in self._cluster_spec.jobs else TaskType.CHIEF

    def _check_cluster(self, cluster: ClusterSpec, task: Mapping[str, Any]) -> None:
        for job in cluster.jobs:
            if job not in _JOBS:
                raise ValueError(
                    f"TF_CONFIG: the cluster has a job '{job}'; the jobs of estimators are "
                    f"{', '.join(_JOBS)}"
                )
        if self._task_type is None:
            raise ValueError('If "cluster" is set in TF_CONFIG, task type must be set.')
        if self._task_type not in _JOBS:
            raise ValueError(
                f"TF_CONFIG: the task type is '{self._task_type}'; it must be one of "
                f"{', '.join(_JOBS)}"
            )
        if self._task_type == TaskType.EVALUATOR:
            return
        both = TaskType.MASTER in cluster.jobs and TaskType.CHIEF in cluster.jobs
        first = self._first_job()
        if both or first not in cluster.jobs:
            raise ValueError(
                'If "cluster" is set in TF_CONFIG, it must have one "chief" node (or "master", in '
                f"its place); it has {', '.join(cluster.jobs)}."
            )
        if cluster.num_tasks(first) > 1:
            raise ValueError(f'The "cluster" in TF_CONFIG must have only one "{first}" node.')
        if "index" not in task:
            raise ValueError('If "cluster" is set in TF_CONFIG, task index must be set.')
        if self._task_type not in cluster.jobs:
            raise ValueError(f"{self._task_type} is not a valid task_type in the cluster_spec.")
        index = int(task["index"])
        if index not in cluster.task_indices(self._task_type):
            raise ValueError(
                f"{index} is not a valid task_id for task_type {self._task_type} in the "
                "cluster_spec."
            )

    # --- What it says.

    @property
    def cluster_spec(self) -> ClusterSpec:
        """The cluster; an empty one in one process, and for an evaluator."""
        return self._cluster_spec

    @property
    def task_type(self) -> str:
        """The job of this task; "worker" in one process."""
        return str(self._task_type)

    @property
    def task_id(self) -> int:
        """The index of this task in its job."""
        return self._task_id

    @property
    def global_id_in_cluster(self) -> int | None:
        """The number of this task in the cluster: the chief, workers, ps; None for an evaluator."""
        return self._global_id

    @property
    def num_ps_replicas(self) -> int:
        """How many ps there are."""
        return self._num_ps_replicas

    @property
    def num_worker_replicas(self) -> int:
        """How many tasks train: the chief and the workers."""
        return self._num_worker_replicas

    @property
    def is_chief(self) -> bool:
        """Whether this task initialises and saves."""
        return self._is_chief

    @property
    def master(self) -> str:
        """The target of sessions that train; "": this process."""
        return self._master

    @property
    def evaluation_master(self) -> str:
        """The target of sessions that evaluate; "": this process."""
        return self._evaluation_master

    @property
    def service(self) -> Any:
        """What TF_CONFIG has as "service"."""
        return self._service

    @property
    def model_dir(self) -> str | None:
        """The folder of checkpoints."""
        return self._model_dir

    @property
    def tf_random_seed(self) -> int | None:
        """Of random ops and first values."""
        return self._tf_random_seed

    @property
    def save_summary_steps(self) -> int | None:
        """Every how many steps summaries are written."""
        return self._save_summary_steps

    @property
    def save_checkpoints_steps(self) -> int | None:
        """Every how many steps the chief saves."""
        return self._save_checkpoints_steps

    @property
    def save_checkpoints_secs(self) -> float | None:
        """Every how many seconds the chief saves."""
        return self._save_checkpoints_secs

    @property
    def session_config(self) -> ConfigProto | None:
        """The options of sessions, if some were given."""
        return self._session_config

    @property
    def keep_checkpoint_max(self) -> int | None:
        """How many checkpoints stay."""
        return self._keep_checkpoint_max

    @property
    def keep_checkpoint_every_n_hours(self) -> float:
        """In how many hours one checkpoint stays for ever."""
        return self._keep_checkpoint_every_n_hours

    @property
    def log_step_count_steps(self) -> int | None:
        """Every how many steps the speed is logged."""
        return self._log_step_count_steps

    @property
    def device_fn(self) -> Callable[[Any], str] | None:
        """The function that says where operations go, if one was given."""
        return self._device_fn

    @property
    def protocol(self) -> str | None:
        """How steps travel; None: as servers do by default."""
        return self._protocol

    @property
    def consistency(self) -> str:
        """What steps of a worker see of those of others."""
        return self._consistency

    @property
    def autoscale(self) -> str:
        """As it was given."""
        return self._autoscale

    @property
    def movable(self) -> bool:
        """Whether variables go to other parameter servers while it trains."""
        return self._movable

    @property
    def session_creation_timeout_secs(self) -> float:
        """How long a worker waits for the chief."""
        return self._session_creation_timeout_secs

    @property
    def checkpoint_save_graph_def(self) -> bool:
        """Whether the graph is written beside checkpoints."""
        return self._checkpoint_save_graph_def

    @property
    def train_distribute(self) -> None:
        """None: see RunConfig()."""
        return None

    eval_distribute = train_distribute

    def replace(self, **kwargs: Any) -> RunConfig:
        """Another one with some values replaced: model_dir, tf_random_seed, session_config and what
        else is of one's own choice, not what TF_CONFIG says of the task."""
        for name in kwargs:
            if name not in _REPLACEABLE:
                raise ValueError(
                    f"Replacing {name} is not supported. Allowed are {', '.join(_REPLACEABLE)}."
                )
        taken = {name: getattr(self, name) for name in _REPLACEABLE}
        if "save_checkpoints_steps" in kwargs and "save_checkpoints_secs" not in kwargs:
            taken["save_checkpoints_secs"] = None
        if "save_checkpoints_secs" in kwargs and "save_checkpoints_steps" not in kwargs:
            taken["save_checkpoints_steps"] = None
        made = copy.copy(self)
        made._take(**{**taken, **kwargs})
        return made

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={getattr(self, name)!r}" for name in _REPLACEABLE)
        return f"RunConfig({said}, task='{self.task_type}:{self.task_id}')"


def _check(
    model_dir: Any, tf_random_seed: Any, session_config: Any, device_fn: Any,
    save_checkpoints_steps: Any, save_checkpoints_secs: Any, keep_checkpoint_every_n_hours: Any,
    log_step_count_steps: Any, protocol: Any, checkpoint_save_graph_def: Any, consistency: Any,
    movable: Any, autoscale: Any, **numbers: Any,
) -> None:  # fmt: skip
    """A ValueError for values that are not good."""
    del checkpoint_save_graph_def
    if autoscale != "off" and not movable:
        raise ValueError(f"autoscale is '{autoscale}', and variables move with movable=True only")
    if model_dir == "":
        raise ValueError("model_dir should be non-empty")
    if save_checkpoints_steps is not None and save_checkpoints_secs is not None:
        raise ValueError("Can not provide both save_checkpoints_steps and save_checkpoints_secs.")
    _check_numbers(
        save_checkpoints_steps=save_checkpoints_steps, save_checkpoints_secs=save_checkpoints_secs,
        **numbers,
    )  # fmt: skip
    if keep_checkpoint_every_n_hours <= 0:
        raise ValueError("keep_checkpoint_every_n_hours should be > 0")
    if log_step_count_steps is not None and log_step_count_steps <= 0:
        raise ValueError("log_step_count_steps should be > 0")
    if device_fn is not None and not callable(device_fn):
        raise ValueError(f"device_fn must be callable with one argument `op`, not {device_fn}")
    if session_config is not None and not isinstance(session_config, ConfigProto):
        raise ValueError(
            f"session_config must be a sidereal.v1.ConfigProto, not {session_config!r}"
        )
    if tf_random_seed is not None and not isinstance(tf_random_seed, int):
        raise ValueError(f"tf_random_seed must be integer, not {tf_random_seed!r}")
    if protocol:
        _native.agree_on_protocol(protocol, "", "")
    hooks_of(consistency, "worker")


def _check_numbers(**values: float | None) -> None:
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            raise ValueError(f"{name} should be >= 0, not {value!r}")
        if name == "session_creation_timeout_secs" and value == 0:
            raise ValueError(f"{name} should be > 0")


def _count(cluster: ClusterSpec, job: str) -> int:
    return cluster.num_tasks(job) if job in cluster.jobs else 0


def _tf_config() -> dict[str, Any]:
    text = os.environ.get("TF_CONFIG", "")
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"TF_CONFIG is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"TF_CONFIG is {found!r}; it must be an object")
    return found


def default_session_config(config: RunConfig) -> ConfigProto:
    """The options of sessions when none are given: soft placement, and in a cluster no task but
    the ps and oneself, so that a worker depends on no other worker."""
    filters: list[str] = []
    if config.cluster_spec:
        filters = ["/job:ps", f"/job:{config.task_type}"]
        if config.task_type == TaskType.WORKER:
            filters[1] += f"/task:{config.task_id}"
        if config.task_type == TaskType.PS:
            filters = []
    return ConfigProto(allow_soft_placement=True, device_filters=filters)
