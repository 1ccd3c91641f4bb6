"""Training on parameter servers by one coordinator (tf.distribute.ParameterServerStrategy)."""

from __future__ import annotations

import logging
import math
import threading
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from types import MappingProxyType
from typing import Any, ClassVar

from .. import _native, errors, v1
from .._conversion import inside
from .._dispatch import state
from .._native import Output, Tensor
from .._step_gate import StepGate
from ..device_spec import ps_device, ps_name
from ..dtypes import as_dtype
from ..function import TensorSpec
from ..variable import creating, initial_tensor, variable_creator_scope
from . import _cluster_checkpoint
from ._cluster_graph import ClusterGraph
from ._cluster_variable import ClusterVariable, may_run_anywhere
from ._partition import ShardInfo, rows_of_shards, spec_of, takes_shards
from ._per_worker_variable import PerWorkerVariable
from ._plan import Call, ClusterFunction, Plan, Plans
from ._resolver import ClusterResolver, Life
from ._strategy import InputContext, ReplicaContext, Strategy, StrategyExtended, entered
from .cluster_resolver import TFConfigClusterResolver
from .sharded_variable import ShardedVariable

__all__ = ["ParameterServerStrategy", "ParameterServerStrategyExtended"]

_log = logging.getLogger("sidereal")
_TASKS = ("chief", "worker", "ps", "evaluator", "voter")
#: How long the strategy waits for its parameter servers.
_CONNECT_MS = 180_000
#: Elements of a variable that is made whole before it is cut, above which a warning is given.
_MANY = 1_000_000_000


def _check_cluster(resolver: ClusterResolver) -> None:
    """ValueError for a cluster that this task cannot coordinate."""
    if not isinstance(resolver, ClusterResolver):
        raise TypeError(f"cluster_resolver is {resolver!r}; give a ClusterResolver")
    spec = resolver.cluster_spec()
    if not spec:
        raise ValueError(
            "Cluster spec must be non-empty in "
            "`tf.distribute.cluster_resolver.ClusterResolver`: give one, or set TF_CONFIG"
        )
    for job in spec.jobs:
        if job not in _TASKS:
            raise ValueError(
                f"Disallowed task type found in cluster spec: '{job}'; allowed are "
                f"{', '.join(_TASKS)}"
            )
    counts = {job: spec.num_tasks(job) for job in spec.jobs}
    kind, index = resolver.task_type, resolver.task_id
    if kind is not None and kind not in _TASKS:
        raise ValueError(
            f"Unrecognized task_type: '{kind}', valid task types are {', '.join(_TASKS)}"
        )
    if kind is not None and kind not in counts and kind != "evaluator":
        raise ValueError(f"`task_type` '{kind}' not found in cluster_spec, which has {counts}")
    for job in ("chief", "evaluator"):
        if counts.get(job, 0) > 1:
            raise ValueError(f"There must be at most one '{job}' job.")
    if kind in counts and index is not None and index >= counts[kind]:
        raise ValueError(f"The `task_id` {index} exceeds the maximum id of {kind}.")
    for job in ("ps", "worker"):
        if counts.get(job, 0) < 1:
            raise ValueError(f"There must be at least one {job}.")
    if kind in ("worker", "ps"):
        raise ValueError(
            f"the coordinator cannot be a '{kind}': those run a sidereal.train.Server and join() it"
        )


class ParameterServerStrategyExtended(StrategyExtended):
    """See StrategyExtended."""

    _strategy: ParameterServerStrategy

    @contextmanager
    def colocate_vars_with(self, colocate_with_variable: Any) -> Iterator[None]:
        """Variables made in the context are on the parameter server of another one, and whole."""
        if isinstance(colocate_with_variable, ShardedVariable):
            colocate_with_variable = colocate_with_variable.variables[0]
        is_known = self.variable_created_in_scope(colocate_with_variable)
        if not is_known or isinstance(colocate_with_variable, PerWorkerVariable):
            raise ValueError(
                "`colocate_vars_with` must only be passed a variable created in this "
                "`tf.distribute.Strategy.scope()`, on a parameter server, not: "
                f"{colocate_with_variable!r}"
            )
        local = self._strategy._local
        before, local.beside = local.beside, colocate_with_variable
        try:
            yield
        finally:
            local.beside = before

    @property
    def worker_devices(self) -> tuple[str, ...]:
        return tuple(
            f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in self._strategy._workers
        )

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        return tuple(self._strategy._ps_device(task) for task in self._strategy._used_ps)


class DistributedDataset:
    """A dataset for workers to iterate over: what ClusterCoordinator.create_per_worker_dataset()
    takes."""

    def __init__(self, make: Callable[[], Any]) -> None:
        #: Makes the dataset of a worker.
        self.make = make

    def __iter__(self) -> Any:
        raise ValueError(
            "a distributed dataset of a ParameterServerStrategy is iterated over by workers: give "
            "it to ClusterCoordinator.create_per_worker_dataset()"
        )


class _Local(threading.local):
    """What a thread does with a strategy."""

    #: The variable that new ones go to.
    beside: Any = None
    #: How many functions are being traced for workers.
    tracing: int = 0
    #: Whether the dataset of a worker is being made.
    in_dataset: bool = False
    #: In _in_one_step(): values that were read, by the node of a variable's handle; steps that are
    #: to assign, by that node: (node, places, values), and None elsewhere.
    read: Mapping[int, Tensor] = MappingProxyType({})
    assigned: dict[int, tuple[Output, list[Output], list[Tensor]]] | None = None


class ParameterServerStrategy(Strategy):
    """Variables on parameter servers, which one coordinator has functions of workers change
    (tf.distribute.ParameterServerStrategy).

        strategy = sr.distribute.ParameterServerStrategy(resolver)
        with strategy.scope():
            table = sr.Variable(lambda: sr.random.normal([1000, 16]))

    The coordinator, this process, reads and changes variables at once; functions that it schedules
    do where they run. Workers and parameter servers run a sidereal.train.Server each.

    cluster_resolver: who is in the cluster; by default as TF_CONFIG says.
    variable_partitioner: a function of shape and dtype that says in how many shards of rows a
        variable is made (experimental.partitioners). None: all are whole.
    start_ps: how many of the cluster's parameter servers it begins on, the first ones; 0: all. The
        others need not run before `sidereal scale` names them.
    consistency: of its ClusterCoordinator, and so of Model.fit() of models made in its scope.
    autoscale: "2-8": the least and the most parameter servers that it is on, as they are busy while
        its coordinator has workers train; the rules are those of `sidereal train --autoscale`.
        "off": it stays where it is, but for commands.
    Errors: ValueError for a cluster without workers or parameter servers, with other jobs, or of
    which this task is a worker; UnavailableError or DeadlineExceededError when parameter servers
    are not there.
    """

    def __init__(
        self, cluster_resolver: ClusterResolver | None = None,
        variable_partitioner: Callable[..., Sequence[int]] | None = None,
        *, start_ps: int = 0, consistency: str = "async", autoscale: str = "off",
    ) -> None:  # fmt: skip
        super().__init__()
        #: Of its coordinator, which checks it.
        self._consistency = consistency
        self._autoscale: _native.Autoscale | None = None
        resolver = TFConfigClusterResolver() if cluster_resolver is None else cluster_resolver
        _check_cluster(resolver)
        if variable_partitioner is not None and not callable(variable_partitioner):
            raise TypeError(
                f"variable_partitioner is {variable_partitioner!r}; give a function of shape and "
                "dtype, as distribute.experimental.partitioners has"
            )
        spec = resolver.cluster_spec()
        self._resolver = resolver
        self._ps = spec.task_indices("ps")
        if not _is_integer(start_ps) or not 0 <= start_ps <= len(self._ps):
            raise ValueError(
                f"start_ps is {start_ps!r}; the cluster has {len(self._ps)} parameter servers, and "
                "0 is all of them"
            )
        if autoscale != "off":
            self._autoscale = _native.Autoscale(autoscale, len(self._ps))
        #: Those that it is on, and those that new variables go to.
        self._used_ps = self._ps[: start_ps or None]
        self._placing_ps = list(self._used_ps)
        #: Variables that are elsewhere than their graph says, by device.
        self._moved: dict[str, str] = {}
        #: Holds up steps of this process while variables are handed over.
        self._gate = StepGate("steps of the coordinator itself")
        self._workers = spec.task_indices("worker")
        self._extended: ParameterServerStrategyExtended = ParameterServerStrategyExtended(self)
        self._partitioner = variable_partitioner
        self._made = 0
        self._local = _Local()
        self._graph = ClusterGraph()
        #: Held by who adds to the graph.
        self._lock = self._graph.changing
        self._group = f"strategy-{uuid.uuid4().hex}"
        self._plans = Plans(self._graph)
        #: Its ClusterCoordinator, as long as somebody has it.
        self._coordinator: weakref.ref[Any] | None = None
        self._steps: dict[Any, Any] = {}
        #: Nodes that give variables their first values, which are to run.
        self._first: list[int] = []
        #: All of its variables that are there, by id().
        self._all: weakref.WeakValueDictionary[int, ClusterVariable] = (
            weakref.WeakValueDictionary()
        )
        with self._lock, self._graph.as_default():
            #: One on each parameter server, for sessions that are to reach all.
            self._everywhere = [self._node_on(task) for task in self._ps]
        self._session: Any = self._new_session(_CONNECT_MS)
        #: Of the parameter servers: one in another life has lost its variables.
        self._lives = self._connect(self._session)

    # --- The cluster.

    @property
    def cluster_resolver(self) -> ClusterResolver:
        return self._resolver

    @property
    def extended(self) -> ParameterServerStrategyExtended:
        return self._extended

    #: The class of coordinators, which are made of strategies.
    _coordinator_type: ClassVar[Any] = None

    def _coordinator_of_models(self) -> Any:
        return self._coordinator_type(self)

    def _keep_coordinator(self, coordinator: Any) -> None:
        self._coordinator = weakref.ref(coordinator)

    def _target(self, job: str, task: int) -> str:
        """What a session is made with whose master is a task."""
        return f"grpc://{self._resolver.cluster_spec().task_address(job, task)}"

    def _target_of_status(self) -> str:
        """Who knows of the whole cluster, for figures."""
        return self._target("ps", self._ps[0])

    def _session_config(self, *filters: str) -> v1.ConfigProto:
        """Options of a session of this strategy that uses these tasks and its master. A step ends
        when all that it changed is there for everybody."""
        config = v1.ConfigProto(
            state_group=self._group, pull_prefetch_ms=0, device_filters=filters,
            connect_timeout_in_ms=_CONNECT_MS,
        )  # fmt: skip
        config._overrides = self._overrides_of(self._moved, self._used_ps)
        return config

    def _config_at(self, task: int, timeout_ms: int) -> v1.ConfigProto:
        """Options of a session at one parameter server, which uses what is there alone."""
        config = self._session_config(f"/job:ps/task:{task}")
        config._overrides = ({}, {})
        config.connect_timeout_in_ms = timeout_ms
        return config

    def _session_at(self, task: int, timeout_ms: int) -> v1.Session:
        """A session that has reached one parameter server, and no other task has a part in."""
        graph = v1.Graph()
        with graph.as_default(), graph.device(self._ps_device(task)):
            node = v1.no_op("reach")
        made = v1.Session(self._target("ps", task), graph, self._config_at(task, timeout_ms))
        made.run(node)
        return made

    def _overrides_of(
        self, moved: Mapping[str, str], used: Sequence[int]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Where sessions have variables that have moved, and which parameter servers they do
        without, with another one in the place of each."""
        left = [task for task in self._ps if task not in used]
        return dict(moved), {ps_name(task): ps_name(used[0]) for task in left}

    def _take_places(self, moved: dict[str, str], used: list[int]) -> None:
        """Variables have moved, and sessions of this process know it."""
        self._moved, self._used_ps = moved, used
        self._lives = self._met_in(self._session)

    def _ps_device(self, task: int) -> str:
        return ps_device(task)

    def _node_on(self, task: int) -> int:
        with self._graph.device(self._ps_device(task)):
            return v1.no_op(f"connect_{task}").node

    def _new_session(self, timeout_ms: int) -> v1.Session:
        config = self._session_config("/job:ps")
        config.connect_timeout_in_ms = timeout_ms
        return v1.Session(self._target("ps", self._ps[0]), self._graph, config)

    def _connect(self, session: v1.Session) -> list[Life]:
        """Waits for the parameter servers: their lives."""
        with self._gate.passing():
            session._run([], self._everywhere, [], [])
        return self._met_in(session)

    def _met_in(self, session: Any) -> list[Life]:
        """The lives of the parameter servers that a session sees; zeros of others."""
        met = {device.name: (device.incarnation, device._state)
               for device in session.list_devices()}  # fmt: skip
        return [met.get(self._ps_device(task), (0, 0)) for task in self._ps]

    def _variables_on(self, device: str) -> list[ClusterVariable]:
        """Those that somebody has."""
        return [variable for variable in self._all.values() if variable.device == device]

    # --- Variables.

    @contextmanager
    def _making(self) -> Iterator[None]:
        """The scope, whoever is in it already."""
        with entered(self, None), variable_creator_scope(self._creator):
            yield

    def _creator(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        before, creating.maker = creating.maker, self._make_variable
        try:
            return next_creator(**kwargs)
        finally:
            creating.maker = before

    def _make_variable(self, **kwargs: Any) -> Any:
        if kwargs["initial_value"] is None:
            raise ValueError("`initial_value` must be specified: a value, or a function of one")
        if kwargs.get("name") is None:
            kwargs["name"] = "Variable"
        if kwargs.pop("per_worker_variable", False):
            return PerWorkerVariable(self, **kwargs)
        beside = self._local.beside
        if beside is not None:
            return self._make_whole(beside.device, **kwargs)
        if self._partitioner is None or creating.whole:
            return self._make_whole(self._next_device(), **kwargs)
        return self._make_shards(**kwargs)

    def _give_first_value(self, node: int) -> None:
        """Notes a node that gives a variable its first value: it runs before the next step of the
        coordinator and before functions of workers, with those of others, as each step with new
        nodes takes time."""
        with self._lock:
            self._first.append(node)

    def _give_first_values(self) -> None:
        with self._lock:  # Another thread may be giving them.
            nodes, self._first = self._first, []
            if nodes:
                self._assign(nodes, [], [])

    def _next_device(self) -> str:
        with self._lock:
            self._made += 1
            return self._ps_device(self._placing_ps[(self._made - 1) % len(self._placing_ps)])

    def _make_whole(
        self, device: str, initial_value: Any, name: str, dtype: Any = None, shape: Any = None,
        **kwargs: Any,
    ) -> ClusterVariable:  # fmt: skip
        beside = self._local.beside
        made = ClusterVariable(self, device, initial_value, name, dtype, shape, beside, **kwargs)
        with self._lock:
            self._all[id(made)] = made
        return made

    def _make_shards(self, **kwargs: Any) -> Any:
        value, dtype, shape = (kwargs.pop(key) for key in ("initial_value", "dtype", "shape"))
        if takes_shards(value) and may_run_anywhere(value):
            shape, dtype = spec_of(value, shape, dtype)
        elif not callable(value) or shape is None or dtype is None:
            is_made, value = callable(value), initial_tensor(value, dtype, shape)
            if is_made and value.size > _MANY:
                _warn_of_size(kwargs["name"], value.size)
            shape, dtype = value.shape, value.dtype
        shape = tuple(shape)
        shards = self._shards(shape, as_dtype(dtype))
        if shards == 1:
            return self._make_whole(
                self._next_device(), initial_value=value, dtype=dtype, shape=shape, **kwargs
            )
        if callable(value) and not takes_shards(value):
            if math.prod(shape) > _MANY:
                _warn_of_size(kwargs["name"], math.prod(shape))
            value = initial_tensor(value, dtype, shape)
        rows = rows_of_shards(shape[0], shards)
        made = []
        begin = 0
        name = kwargs.pop("name")
        for i, count in enumerate(rows):
            info = ShardInfo((count, *shape[1:]), (begin, *(0 for _ in shape[1:])))
            made.append(
                self._make_whole(
                    self._next_device(), initial_value=info.part_of(value), dtype=dtype,
                    shape=info.shape, name=f"{name}/part_{i}", **kwargs,
                )
            )  # fmt: skip
            begin += count
        return ShardedVariable(made, name=name)

    def _shards(self, shape: tuple[int, ...], dtype: Any) -> int:
        """In how many shards a variable is made."""
        if not shape:
            return 1
        assert self._partitioner is not None
        parts = self._partitioner(shape=shape, dtype=dtype)
        fits = isinstance(parts, (list, tuple)) and all(_is_integer(part) for part in parts)
        if not fits or not parts or parts[0] < 1 or any(part != 1 for part in parts[1:]):
            raise ValueError(
                "variable_partitioner must return a list/tuple of integers, none but the first "
                f"larger than 1, and the first at least 1; for shape {shape} it returns {parts!r}"
            )
        return max(min(parts[0], shape[0]), 1)

    # --- What runs.

    def _trace(
        self, function: Callable[..., Any], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Plan:  # fmt: skip
        """The plan of a Python function, or a sidereal.function, called with these arguments, of
        which tensors, arrays and TensorSpecs are what is fed."""
        if isinstance(function, ClusterFunction):
            return self._plans.find(function, args, dict(kwargs or {}))[0]
        with self._lock, self._for_workers():
            return Plan(self._graph, Call(function, args, dict(kwargs or {})))

    def _plan(
        self, function: Callable[..., Any], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None, plans: Plans | None = None,
    ) -> tuple[Plan, list[Tensor]]:  # fmt: skip
        """The plan of a call, traced if no earlier one serves it, and what is fed. `plans`: others
        than those of functions that are called."""
        with self._lock, self._for_workers():
            plan, tensors = (plans or self._plans).find(function, args, dict(kwargs or {}))
        return plan, plan.values(tensors)

    @contextmanager
    def _for_workers(self) -> Iterator[None]:
        """What is traced in the context runs on workers."""
        self._local.tracing += 1
        before, self._local.beside = self._local.beside, None
        try:
            with self._making():
                yield
        finally:
            self._local.tracing -= 1
            self._local.beside = before
            if self._local.tracing == 0:
                self._give_first_values()

    def _run_function(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Runs a function that uses variables of the cluster, with the coordinator's session."""
        return self._run(*self._plan(function, args, kwargs))

    def _concrete_function(self, function: Any, args: Any, kwargs: Any) -> ClusterFunction:
        """A function that uses variables of the cluster, traced for arguments like these."""
        with self._lock, self._for_workers():
            call = Call(function, args, kwargs)
            return ClusterFunction(call, self._plans.of(function, call), self._run)

    def _run(self, plan: Plan, values: list[Tensor]) -> Any:
        """What a plan gives, with the coordinator's session."""
        if state.tapes:
            raise errors.UnimplementedError(
                "a GradientTape of the coordinator is around a function of variables on parameter "
                "servers: put the tape inside of the function"
            )
        return self._fetched(plan, values)

    def _fetched(self, plan: Plan, values: list[Tensor]) -> Any:
        self._come_before()
        self._local.read = _Local.read
        for variable in plan.of_workers:
            raise variable.is_elsewhere()
        if not plan.outputs and not plan.nodes:
            return plan.pack([])
        return plan.pack(self._step(plan.outputs, plan.nodes, plan.places, values))

    def _step(
        self, outputs: list[Output], nodes: list[int], places: list[Any], values: list[Tensor]
    ) -> list[Tensor]:
        """A step of the coordinator's session."""
        with self._gate.passing():
            found: list[Tensor] = self._session._run(outputs, nodes, places, values)
            return found

    def _run_node(
        self, variable: ClusterVariable, op: str, inputs: list[Any], attrs: dict[str, Any] | None
    ) -> Any:
        """Runs one node beside a variable; its value, if the node is to be read."""
        node, local = variable._handle.node, self._local
        if op == "VariableRead" and node in local.read:
            return local.read[node]
        if op != "VariableRead":
            local.read = _Local.read
        waiting = local.assigned if op == "VariableAssign" else None
        if waiting is None or node in waiting:
            self._come_before()
        key = (node, op, repr(attrs), *(_shape_key(value) for value in inputs))
        fed = [value for value in inputs if type(value) is Tensor]
        with self._lock:
            if key not in self._steps:
                with self._graph.tracing(op):
                    entered = [self._place(value, op, variable) for value in inputs]
                    made = variable._add(op, entered, attrs)
                places = [new for new, old in zip(entered, inputs) if type(old) is Tensor]
                self._steps[key] = (made, places)
            made, places = self._steps[key]
        if op == "VariableRead":
            return self._step([made], [], places, fed)[0]
        if waiting is not None:
            waiting[node] = (made, places, fed)
        elif op == "VariableAssign":
            self._assign([made.node], places, fed)
        else:
            self._step([], [made.node], places, fed)
        return None

    @contextmanager
    def _in_one_step(self, variables: Sequence[ClusterVariable], op: str) -> Iterator[None]:
        """See variable.together(): reads are of a step now, assignments become one in the end, or
        before what this thread does otherwise."""
        local = self._local
        reads = [self._prepare(each, "VariableRead") for each in variables]
        if op == "VariableRead":
            self._come_before()
            found = self._step(reads, [], [], [])
            local.read = {each._handle.node: value for each, value in zip(variables, found)}
            try:
                yield
            finally:
                local.read = _Local.read
            return
        for each in variables:
            self._prepare(each, op)
        is_first = local.assigned is None
        if is_first:
            local.assigned = {}
        try:
            yield
        finally:
            if is_first:
                try:
                    self._come_before()
                finally:
                    local.assigned = None

    def _come_before(self) -> None:
        """What waits, before a step of this thread."""
        self._give_first_values()
        local = self._local
        if local.assigned:
            steps = list(local.assigned.values())
            local.assigned.clear()
            self._assign(
                [made.node for made, _, _ in steps],
                [place for _, places, _ in steps for place in places],
                [value for _, _, values in steps for value in values],
            )

    def _assign(self, nodes: list[int], places: list[Any], values: list[Tensor]) -> None:
        """Gives variables values, twice if a parameter server is lost and comes back."""
        with self._gate.passing():
            run = getattr(self._session, "_run_again", self._session._run)
            run([], nodes, places, values)

    def _prepare(self, variable: ClusterVariable, op: str) -> Output:
        """Adds the node of _run_node() that reads a variable, or assigns to it."""
        changes = op == "VariableAssign"
        attrs = None if changes else variable._read_attrs()
        inputs = [(variable.dtype.name, variable.ndim)] if changes else []
        key = (variable._handle.node, op, repr(attrs), *inputs)
        with self._lock:
            if key not in self._steps:
                with self._graph.tracing(op):
                    places = [
                        self._graph.placeholder(variable.dtype, variable.shape, "x") for _ in inputs
                    ]
                    self._steps[key] = (variable._add(op, places, attrs), places)
            made: Output = self._steps[key][0]
            return made

    def _count_files_of(self, parts: Sequence[_cluster_checkpoint.Part]) -> int:
        """How many data files _save_variables() writes."""
        return len(_cluster_checkpoint.by_node(parts))

    def _save_variables(
        self, prefix: str, parts: Sequence[_cluster_checkpoint.Part], first: int, shards: int,
        since: str, tracks_changes: bool,
    ) -> list[Tensor]:  # fmt: skip
        """See _cluster_checkpoint.save()."""
        return _cluster_checkpoint.save(self, prefix, parts, first, shards, since, tracks_changes)

    def _restore_variables(self, prefix: str, parts: Sequence[_cluster_checkpoint.Part]) -> None:
        """See _cluster_checkpoint.restore()."""
        _cluster_checkpoint.restore(self, prefix, parts)

    def _place(self, value: Any, op: str, variable: ClusterVariable) -> Any:
        if type(value) is not Tensor:
            return value
        whole = op.startswith("VariableAssign")
        shape = variable.shape if whole else [-1] * value.ndim
        return self._graph.placeholder(value.dtype, shape, "x")

    def _run_method(
        self, variable: ClusterVariable, method: str, tensors: list[Tensor], *others: Any
    ) -> Any:
        """Runs a method of a variable that is several nodes."""
        shapes = [_shape_key(tensor) for tensor in tensors]
        key = (variable._handle.node, method, others, *shapes)
        with self._lock:
            if key not in self._steps:
                specs = [TensorSpec([-1] * tensor.ndim, tensor.dtype) for tensor in tensors]
                rest = others or (None,)
                call = Call(getattr(variable, method), (*specs, *rest), {})
                self._steps[key] = Plan(self._graph, call)
            plan = self._steps[key]
        return self._fetched(plan, plan.values(tensors))

    # --- As strategies have it.

    def _warn_unless_scheduled(self, method: str) -> None:
        if self._local.tracing == 0:
            _log.warning(
                "ParameterServerStrategy.%s() is invoked without using "
                "`ClusterCoordinator.schedule`, and runs on the coordinator, which can be slow: "
                "call it in a function that is scheduled",
                method,
            )

    def run(
        self, fn: Callable[..., Any], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None, options: Any = None,
    ) -> Any:  # fmt: skip
        """fn(*args, **kwargs) on the replicas of the worker that runs a scheduled function, of
        which there is one; elsewhere in the coordinator, with a warning."""
        self._warn_unless_scheduled("run")
        self._check_cross_replica("run")
        if not callable(fn):
            raise TypeError(f"ParameterServerStrategy.run() is given {fn!r}, which is no function")
        with entered(self, ReplicaContext(self)):
            return inside(fn)(*args, **(kwargs or {}))

    def reduce(self, reduce_op: Any, value: Any, axis: int | None = None) -> Any:
        """The values of the replicas of a worker as one, and, with an axis, what each has along
        it."""
        self._warn_unless_scheduled("reduce")
        return super().reduce(reduce_op, value, axis)

    @contextmanager
    def _worker_dataset(self) -> Iterator[None]:
        """The dataset of a worker is made in the context."""
        self._local.in_dataset = True
        try:
            yield
        finally:
            self._local.in_dataset = False

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """The dataset itself in a function of ClusterCoordinator.create_per_worker_dataset();
        elsewhere what that takes."""
        if self._local.in_dataset:
            return dataset
        return DistributedDataset(lambda: dataset)

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: Any = None
    ) -> Any:
        """What `dataset_fn` makes of an InputContext, in a function of
        ClusterCoordinator.create_per_worker_dataset(); elsewhere what that takes."""
        if not callable(dataset_fn):
            raise TypeError(
                f"dataset_fn is {dataset_fn!r}; give a function of an InputContext that makes a "
                "dataset"
            )
        context = InputContext(1, 0, self.num_replicas_in_sync)
        if self._local.in_dataset:
            return dataset_fn(context)
        return DistributedDataset(lambda: dataset_fn(context))


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral)


def _shape_key(value: Any) -> Any:
    if type(value) is Output:
        return (value.node, value.index)
    return (value.dtype.name, value.ndim)


def _warn_of_size(name: str, elements: int) -> None:
    warnings.warn(
        f"variable '{name}' of {elements} elements is made whole in the coordinator before it is "
        "cut: give a function of shard_info",
        stacklevel=5,
    )


