"""Functions that one coordinator has the workers of a cluster run (tf.distribute.coordinator)."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import sys
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .. import _native, errors, nest
from .._datasets import Dataset
from .._dispatch import apply, convert, state
from .._iterators import GraphIterator
from .._looking import look_after
from .._lost import RestoredTask
from .._native import Output, Tensor
from .._pipelines import leaving_open
from ..checkpoint_manager import CheckpointManager
from ..errors import ClosureInputError, PSUnavailableError
from ..function import ConcreteFunction, Function, checked_compute_dtype
from ..security import SecurityOptions
from ..server import session_options
from ..v1 import moving
from ..variable import variable_creator_scope
from . import _recovery
from ._copies import Copies, OfWorkers
from ._moves import StrategyMover
from ._per_worker import (
    MS,
    PerWorkerDataset,
    PerWorkerIterator,
    PerWorkerTensor,
    PerWorkerValues,
    RemoteValue,
    WorkerIterator,
    get_current_worker_index,
    milliseconds,
    tracing,
)
from ._per_worker_variable import PerWorkerVariable
from ._plan import Plan
from ._recovery import Recovery
from ._steps import Steps
from .parameter_server_strategy import DistributedDataset, ParameterServerStrategy

__all__ = [
    "ClosureInputError", "ClusterCoordinator", "PSUnavailableError", "PerWorkerDataset",
    "PerWorkerIterator", "PerWorkerValues", "RemoteValue", "get_current_worker_index",
]  # fmt: skip

#: Closures that wait for a worker.
_QUEUE_MAX = 256 * 1024
#: Failures are counted for so long.
_WINDOW_S = 600.0
#: Missing workers are named so often.
_REPORT_S = 60.0

_open: weakref.WeakSet[ClusterCoordinator] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Ends threads while there is a Python that they may call, and an engine."""
    for coordinator in list(_open):
        coordinator._end()



class ClusterCoordinator:
    """Has the workers of a cluster run functions, each on any of them (tf.distribute.coordinator).

        coordinator = sr.distribute.coordinator.ClusterCoordinator(strategy)
        for _ in range(1000):
            coordinator.schedule(train_step, args=(iterator,))
        coordinator.join()

    One whose worker is lost runs again elsewhere, so that each runs at least once (but see
    `effectively_once`); the first error of another kind is raised by the next schedule(), join() or
    done(), after all others were cancelled. There is one for each strategy.

    strategy: a ParameterServerStrategy.
    closures_per_worker: how many functions a worker has at a time. With more than one it need not
        wait for the coordinator between two.
    queue_limit: functions that may wait for a worker; 0: any number.
    closure_timeout: seconds that a function may run; None: any.
    compute_dtype: what workers compute products of float32 matrices in; see sidereal.function().
    ps_timeout: seconds after which a parameter server that does not answer is lost.
    effectively_once: a function that runs again does not make the changes of variables again that
        it has made; where it would, it sees the variable as it is. Variables alone: what it does to
        queues and tables it does again.
    consistency: what a function misses that others do on other workers while it runs; that of the
        strategy if absent. "async": anything. "bounded(s)", s from 1: a worker that has ended more
        than s functions while one of another worker runs begins no more until that has ended.
        "sync": functions train in step. One optimizer.apply_gradients() in a function is its part
        of a step; when as many functions as there are workers have given theirs, variables are
        updated once by the means, these functions have ended, and the next ones begin. Those that
        apply no gradients run at any time. "sync(k of n)": k of the n workers are enough, and what
        slower ones give is dropped. "hybrid": as sync, but rows of tables are updated by each
        function, at once. "geo(k)": each worker trains copies of the dense variables, adds what k
        applications of an optimizer changed in them to those on parameter servers, and goes on from
        the sums; rows of tables as with "async".
    on_ps_loss: "raise": the job has failed, as in TensorFlow. "restore": a parameter server that is
        started again within `ps_timeout` gets its variables from the newest checkpoint of
        restore_from(), those of others stay, and what did not end runs again.
    Environment: TF_COORDINATOR_SCHEDULE_START_DELAY (worker i begins i times so many seconds late)
        and _MAX; TF_COORDINATOR_IGNORE_TRANSIENT_PS_FAILURES (3) and
        TF_COORDINATOR_IGNORE_TRANSIENT_TIMEOUTS (a tenth of the workers), which within ten minutes
        end the job; TF_CLUSTER_COORDINATOR_WATCH_DOG_TIMEOUT (-1: none): when functions are under
        way, and none has ended for so many seconds, the stacks of all threads are written.
    """

    _native: _native.ClusterCoordinator

    def __new__(cls, strategy: Any, **options: Any) -> ClusterCoordinator:
        if not isinstance(strategy, ParameterServerStrategy):
            raise ValueError(
                "Only `tf.distribute.ParameterServerStrategy` is supported to work with "
                f"`tf.distribute.coordinator.ClusterCoordinator`, and not {strategy!r}"
            )
        with strategy._lock:
            known = strategy._coordinator() if strategy._coordinator is not None else None
            if known is None:
                known = super().__new__(cls)
                known._begin(strategy, **options)
                strategy._keep_coordinator(known)
            elif options:
                raise ValueError("the strategy has a coordinator already, with other options")
            return known

    def _begin(
        self, strategy: ParameterServerStrategy, *, closures_per_worker: int = 1,
        queue_limit: int = _QUEUE_MAX, closure_timeout: float | None = None,
        ps_timeout: float = 30.0, compute_dtype: Any = "float32", effectively_once: bool = False,
        consistency: str | None = None, on_ps_loss: str = "raise",
    ) -> None:  # fmt: skip
        if consistency is None:
            consistency = strategy._consistency
        if on_ps_loss not in ("raise", "restore"):
            raise ValueError(f"on_ps_loss is {on_ps_loss!r}; it is 'raise' or 'restore'")
        if queue_limit < 0:
            raise ValueError(f"queue_limit is {queue_limit}; it must be at least 0")
        if queue_limit == 0:
            warnings.warn("closures are queued without a limit, in the memory that there is",
                          stacklevel=3)  # fmt: skip
        self._strategy = strategy
        self._numbers: dict[int, tuple[Plan, int]] = {}
        self._quick: dict[Any, tuple[Plan, int, list[int]]] = {}
        self._index: Output | None = None
        #: What functions use that each worker has of its own: by id(), with the number of the
        #: resource.
        self._own: dict[int, tuple[PerWorkerVariable | OfWorkers, int]] = {}
        config = strategy._session_config("/job:ps")
        config.compute_dtype = checked_compute_dtype(compute_dtype)
        ms = {
            "failure_window_ms": _WINDOW_S, "report_ms": _REPORT_S, "ps_timeout_ms": ps_timeout,
            "closure_timeout_ms": closure_timeout or 0,
            "start_delay_ms": _from_environment("TF_COORDINATOR_SCHEDULE_START_DELAY", 0),
            "start_delay_max_ms": _from_environment("TF_COORDINATOR_SCHEDULE_START_DELAY_MAX", 0),
        }  # fmt: skip
        counts = {
            "queue_max": queue_limit,
            "in_flight_max": closures_per_worker,
            "effectively_once": effectively_once,
            "restores_ps": on_ps_loss == "restore",
            "transient_ps_failures": _from_environment(
                "TF_COORDINATOR_IGNORE_TRANSIENT_PS_FAILURES", 3
            ),
            "transient_timeouts": _from_environment(
                "TF_COORDINATOR_IGNORE_TRANSIENT_TIMEOUTS", len(strategy._workers) // 10
            ),
        }
        self._ended = threading.Event()
        self._looking: list[Callable[[], None]] = []
        self._recovery: Recovery | None = None
        if on_ps_loss == "restore":
            self._recovery = Recovery(strategy, ps_timeout)
        self._native = _native.ClusterCoordinator.create(
            [strategy._target("worker", task) for task in strategy._workers],
            strategy._lives,
            session_options(config),
            SecurityOptions.from_environment()._to_native(),
            {
                **{name: int(seconds * MS) for name, seconds in ms.items()},
                **{name: int(count) for name, count in counts.items()},
                "consistency": consistency,
                "step_target": strategy._target_of_status(),
                "step_ps": strategy._ps[0],
            },
        )
        self._mover = StrategyMover(strategy, self._native, self._ended, self._recovery)
        #: Neither: optimizers in functions update variables.
        self._steps: Steps | None = None
        self._copies: Copies | None = None
        read = _native.parse_consistency(consistency)
        if read.is_in_step:
            self._steps = Steps(strategy, self._native, read.text, uuid.uuid4().hex)
        elif read.window:
            self._copies = Copies(self, read.window)
        #: Concrete functions as functions, by id().
        self._wrapped: dict[int, tuple[ConcreteFunction, Function]] = {}
        if self._recovery is not None:
            self._recovery.coordinate(self._native)
        self._look_after()

    def _look_after(self) -> None:
        """What threads do beside the program, until nobody has the coordinator, or the program
        ends."""
        looks: dict[str, tuple[Callable[[ClusterCoordinator], None], float]] = {
            "moves": (_move, moving.LOOK_S)
        }
        if self._recovery is not None:
            looks["recovery"] = (_restore, _recovery.LOOK_S)
        patience = _from_environment("TF_CLUSTER_COORDINATOR_WATCH_DOG_TIMEOUT", -1)
        if patience > 0:
            looks["watch dog"] = (_WatchDog(patience).look, patience / 4)
        self._looking = [
            look_after(self, look, every_s, name, self._ended)
            for name, (look, every_s) in looks.items()
        ]
        _open.add(self)

    def _end(self) -> None:
        with contextlib.suppress(Exception):
            self._ended.set()
            for end in self._looking:
                end()
            if self._recovery is not None:
                self._recovery.end()
            # It may have none: its beginning has failed.
            self._mover.end()
            self._native.close()

    def __del__(self) -> None:
        self._end()

    @property
    def strategy(self) -> ParameterServerStrategy:
        return self._strategy

    # --- What runs.

    def schedule(
        self, fn: Any, args: Sequence[Any] | None = None, kwargs: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> RemoteValue:  # fmt: skip
        """Queues fn(*args, **kwargs) for any worker, and does not wait for it, unless the queue is
        full, for `timeout` seconds at most.

        fn: a sidereal.function, or a concrete one. It is traced here, once for each signature.
        args, kwargs: values, and PerWorkerValues, of which the function gets its worker's.
        Errors: the first one of an earlier function; TypeError for a function that is not compiled;
        ValueError for a RemoteValue among the arguments.
        """
        is_plain = not kwargs and isinstance(args, (list, tuple, type(None)))
        key = self._quick_key(fn, args or ()) if is_plain else None
        known = None if key is None else self._quick.get(key)
        if known is not None:
            plan, number, resources = known
            tensors = plan.values([leaf for leaf in args or () if type(leaf) is Tensor])
        else:
            plan, number, resources, tensors = self._found(fn, args, kwargs)
            if key is not None:
                self._quick[key] = (plan, number, resources)
        if self._steps is not None:
            self._steps.feed(plan)
        if self._copies is not None:
            self._copies.note(plan)
        ms = milliseconds(timeout)
        return RemoteValue(self._native.schedule(number, tensors, resources, ms), plan)

    def _quick_key(self, fn: Any, args: Sequence[Any]) -> Any:
        """The same for calls whose plan is found without looking at their structure: arguments are
        tensors and values of workers. None for others."""
        key: list[Any] = [fn]
        for leaf in args:
            if type(leaf) is Tensor:
                key += (leaf.dtype, leaf.shape)
            elif isinstance(leaf, PerWorkerValues) and leaf._coordinator is self:
                key.append(leaf._resource)
            else:
                return None
        return tuple(key)

    def _found(
        self, fn: Any, args: Sequence[Any] | None, kwargs: dict[str, Any] | None
    ) -> tuple[Plan, int, list[int], list[Tensor]]:
        """The plan of a call, its number, what it uses of workers, and what is fed."""
        if not isinstance(fn, (Function, ConcreteFunction)):
            raise TypeError(
                "`tf.distribute.coordinator.ClusterCoordinator.schedule` only accepts a "
                f"`tf.function` or a concrete function, and not {fn!r}; make it one with "
                "sidereal.function"
            )
        if args is not None and not isinstance(args, (list, tuple)):
            raise TypeError(
                "the arguments of a function are scheduled as a tuple or a list, args=(x,), and "
                f"not as a {type(args).__name__}"
            )
        if not isinstance(kwargs, (Mapping, type(None))):
            raise TypeError(f"kwargs are a dict by the names of arguments, and not {kwargs!r}")
        resources: list[int] = []
        args, kwargs = self._entered((tuple(args or ()), kwargs or {}), resources)
        with self._tells_worker():
            begin = time.perf_counter_ns()
            plan, tensors = self._plan(fn, args, kwargs)
            if id(plan) not in self._numbers:
                self._native.record_tracing(time.perf_counter_ns() - begin)
            number = self._number(plan)
        resources += [self._own_of(each) for each in plan.of_workers]
        return plan, number, resources, tensors

    def _plan(
        self, fn: Function | ConcreteFunction, args: Any, kwargs: Any
    ) -> tuple[Plan, list[Tensor]]:
        collector = self._steps or self._copies
        if collector is None:
            return self._strategy._plan(fn, args, kwargs)
        if isinstance(fn, ConcreteFunction):
            # It was traced to update variables.
            if id(fn) not in self._wrapped:
                self._wrapped[id(fn)] = (fn, Function(_calling(fn)))
            fn = self._wrapped[id(fn)][1]
        with state.collecting(collector):
            return self._strategy._plan(fn, args, kwargs, collector.plans)

    def join(self, timeout: float | None = None) -> None:
        """Waits until all that was scheduled has ended; in seconds. With "geo(k)" workers have sent
        all that they have learned then. Errors: the first one of a function; DeadlineExceededError
        naming workers that are waited for."""
        ms = milliseconds(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        self._native.join(ms)
        if self._copies is not None:
            self._copies.flush(until)

    def done(self) -> bool:
        """Whether all that was scheduled has ended. Errors: the first one of a function."""
        return self._native.done()

    def fetch(self, val: Any) -> Any:
        """`val` with the values of the RemoteValues in it, as NumPy arrays; waits for them. Of a
        variable that each worker has one of, the list of all."""
        return nest.map_structure(_fetched, val)

    def metrics(self) -> dict[str, Any]:
        """What it does now, and how long things took so far: `queued`, `in_flight`,
        `workers_found`, `retried`, `steps` (in step, that have ended), `moves` (commands that had
        variables move), and by TensorFlow's names `function_tracing`, `closure_execution` (sent to
        ended), `remote_value_fetch` (waits for values) and `server_def_update` (sessions of workers
        that were made, or got more functions), each with `count`, and `sum`, `mean`, `p50`, `p99`
        and `max` in seconds."""
        names = ("queued", "in_flight", "workers_found", "retried")
        *now, _, steps = self._native.figures()
        out: dict[str, Any] = dict(zip(names, now))
        out["steps"] = steps
        out["moves"] = self._mover.moves
        for name, (count, *ns) in self._native.timings().items():
            total, p50, p99, most = (value / 1e9 for value in ns)
            out[name] = {
                "count": count, "sum": total, "mean": total / max(count, 1), "p50": p50, "p99": p99,
                "max": most,
            }  # fmt: skip
        return out

    def restore_from(self, manager: CheckpointManager) -> None:
        """Says where the variables of a parameter server that is lost come from, with
        on_ps_loss="restore": the newest checkpoint of `manager`, which has all variables."""
        if self._recovery is None:
            raise errors.FailedPreconditionError(
                "restore_from() is of use to a ClusterCoordinator(on_ps_loss='restore')"
            )
        self._recovery.restore_from(manager)

    @property
    def restored(self) -> list[RestoredTask]:
        """The parameter servers that were lost and have their variables again, the latest last:
        what each of them held, how many functions had pushed to it what is lost, and how many
        pushes and rows that is."""
        return [] if self._recovery is None else list(self._recovery.restored)

    # --- What each worker has.

    def _create_per_worker_resources(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Any = None
    ) -> PerWorkerValues:
        """What each worker makes for itself by running `fn`: tensors whose shape is known. It is
        made anew when a worker returns, and an error is that of the functions that use it."""
        made: list[Any] = []

        def make() -> None:
            result = fn(*args, **(kwargs or {}))
            made.append(nest.map_structure(self._kept_by_worker, result))

        with self._tells_worker():
            made_by = self._strategy._trace(make)
            for variable in made_by.of_workers:
                raise errors.UnimplementedError(
                    f"what a worker makes for itself is made of variable '{variable.name}' of each "
                    "worker: read that in the functions that are scheduled"
                )
            plan = self._number(made_by)
        kept = [leaf for leaf in nest.flatten(made[-1]) if isinstance(leaf, PerWorkerTensor)]
        resource = self._native.create_resource(plan, self._drop([leaf._handle for leaf in kept]))
        return PerWorkerValues(self, resource, made[-1])

    def _drop(self, handles: Sequence[Output]) -> int:
        """The plan by which a worker lets go of what it made."""

        def drop() -> None:
            for handle in handles:
                apply("DestroyResource", (self._strategy._graph.enter(handle),))

        return self._number(self._strategy._trace(drop))

    def _kept_by_worker(self, leaf: Any) -> PerWorkerTensor | None:
        if leaf is None:
            return None
        value = convert(leaf)
        if value.shape is None or min(value.shape, default=0) < 0:
            raise errors.InvalidArgumentError(
                f"what a worker makes for itself must have a shape that is known, and not "
                f"{value.shape}"
            )
        graph = self._strategy._graph
        handle = graph.add_variable("per_worker", "", value.dtype, value.shape)
        apply("VariableAssign", (graph.enter(handle), value))
        return PerWorkerTensor(handle, value)

    def _own_of(self, each: PerWorkerVariable | OfWorkers) -> int:
        """The resource that each worker has as its own of this."""
        with self._strategy._lock:
            if id(each) not in self._own:
                make, drop = self._number(each._made), self._drop(each._handles)
                self._own[id(each)] = each, self._native.create_resource(make, drop)
            return self._own[id(each)][1]

    def _read_of_workers(self, variable: PerWorkerVariable) -> list[Tensor]:
        """The values of all workers' own."""
        plan = variable._given
        given: list[list[Tensor]] = [[] for _ in self._strategy._workers]
        return self._run_on_workers(plan, self._number(plan), self._own_of(variable), given)

    def _plan_of_workers(self, function: Callable[..., Any], *args: Any) -> tuple[Plan, int]:
        """The plan of what each worker runs, and its number."""
        with self._tells_worker():
            plan = self._strategy._trace(function, args)
            return plan, self._number(plan)

    def _run_on_workers(
        self, plan: Plan, number: int, resource: int, given: Sequence[Sequence[Tensor]]
    ) -> list[Any]:
        """What a plan gives on each worker, with what is given to that, before what is queued."""
        asked = [
            RemoteValue(self._native.schedule_on(worker, number, values, [resource], True), plan)
            for worker, values in enumerate(given)
        ]
        return [value.get() for value in asked]

    def create_per_worker_dataset(self, dataset_fn: Any) -> PerWorkerDataset:
        """A dataset that each worker reads for itself, from its beginning, and again when it comes
        back. `dataset_fn`: a Dataset, what the strategy has distributed, or a function that gives
        one of these; it is called here, once. Errors: ValueError for anything else, and for a
        function that makes variables; FailedPreconditionError for a dataset that needs this
        process."""
        dataset = self._dataset_of(dataset_fn)
        try:
            dataset.serialize()
        except errors.FailedPreconditionError as error:
            raise errors.FailedPreconditionError(
                f"{error}; workers make datasets of files, arrays and numbers, and of functions of "
                "sidereal's ops"
            ) from None
        return PerWorkerDataset(self, dataset)

    def _dataset_of(self, dataset_fn: Any) -> Dataset:
        dataset = dataset_fn
        with self._making_dataset() as values:
            if callable(dataset):
                with variable_creator_scope(_no_variables):
                    dataset = dataset()
            if isinstance(dataset, DistributedDataset):
                dataset = dataset.make()
        if isinstance(dataset, Dataset) and values:
            dataset._values = values
        if not isinstance(dataset, Dataset):
            raise ValueError(
                f"Unexpected dataset type! A dataset of workers is made of {dataset!r}; give a "
                "sidereal.data.Dataset or a function that returns one"
            )
        return dataset

    @contextmanager
    def _making_dataset(self) -> Iterator[list[Output]]:
        """The dataset of a worker is made in the context: at once, but for what depends on the
        number of the worker: that is left open, and computed where the dataset is read."""
        graph = self._strategy._graph
        with graph.changing, self._strategy._worker_dataset(), self._tells_worker():
            begin = len(graph.native)
            with graph.tracing("dataset"), state.at_once(), leaving_open() as values:
                yield values
            graph.lasting.update(range(begin, len(graph.native)))

    def _data_of_model(self, x: Any) -> Any:
        """The dataset of what keras models are trained with, where that makes one: a distributed
        one, one of workers, or a function of an InputContext; else what is given."""
        if isinstance(x, PerWorkerDataset):
            return x._dataset
        if callable(x) and not hasattr(x, "__iter__") and not hasattr(x, "__getitem__"):
            x = self._strategy.distribute_datasets_from_function(x)
        return self._dataset_of(x) if isinstance(x, DistributedDataset) else x

    def _make_iterator(self, dataset: Dataset) -> PerWorkerIterator:
        graph = self._strategy._graph
        made: list[GraphIterator] = []

        def make() -> None:
            values = [graph.enter(value) for value in dataset._values]
            made.append(GraphIterator(dataset, f"iterator_{uuid.uuid4().hex}", values))

        plan = self._strategy._trace(make)
        node = made[0].handle.node
        # The handle is what begins to read.
        plan.targets.append(graph.native.node_name(node))
        with self._tells_worker():
            tracing.asked = bool(dataset._values)
            number = self._number(plan)
            resource = self._native.create_resource(number, self._drop([made[0].handle]))
        return PerWorkerIterator(self, resource, WorkerIterator(made[0]))

    def _entered(self, structure: Any, resources: list[int]) -> Any:
        """`structure` with what the worker that runs it has of per-worker values."""
        leaves = []
        for leaf in nest.flatten(structure):
            if isinstance(leaf, RemoteValue):
                raise ValueError(
                    "a RemoteValue is an argument of a function that is scheduled: fetch() it, or "
                    "compute it in the function"
                )
            if isinstance(leaf, PerWorkerDataset):
                raise TypeError(
                    "a dataset of workers is an argument of a function that is scheduled: give "
                    "iter() of it, made once, outside of the function"
                )
            if isinstance(leaf, PerWorkerValues):
                if leaf._coordinator is not self:
                    raise ValueError("an argument is a value of workers of another coordinator")
                resources.append(leaf._resource)
                leaf = leaf._structure
            leaves.append(leaf)
        return nest.pack(structure, leaves) if resources else structure

    # --- Plans.

    @contextmanager
    def _tells_worker(self) -> Iterator[None]:
        """get_current_worker_index() is known in the context."""
        before = tracing.index, tracing.asked
        tracing.index, tracing.asked = self._worker_index, False
        try:
            yield
        finally:
            tracing.index, tracing.asked = before

    def _worker_index(self) -> Output:
        graph = self._strategy._graph
        if self._index is None:
            with graph.tracing("worker_index"):
                self._index = graph.placeholder("int64", (), "value")
            graph.lasting.add(self._index.node)
        return graph.enter(self._index) if state.graph is None else state.graph.enter(self._index)

    def _number(self, plan: Plan) -> int:
        """What the core calls a plan."""
        known = self._numbers.get(id(plan))
        if known is not None:
            return known[1]
        with self._strategy._lock:
            self._native.set_graph(self._strategy._graph.native)
            feeds = [*plan.feeds]
            if plan.step is not None:
                feeds.append(plan.step)
            if tracing.asked:
                assert self._index is not None
                feeds.append(self._index.name)
            number = self._native.add_plan(
                feeds, plan.fetches, plan.targets, plan.steps, tracing.asked
            )
        self._numbers[id(plan)] = (plan, number)
        return number


ParameterServerStrategy._coordinator_type = ClusterCoordinator


def _restore(coordinator: ClusterCoordinator) -> None:
    assert coordinator._recovery is not None
    coordinator._recovery.look_for_lost()


def _move(coordinator: ClusterCoordinator) -> None:
    coordinator._mover.look()


class _WatchDog:
    """Writes what all threads do when functions are under way and none ends for so many seconds."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._before, self._since = -1, time.monotonic()

    def look(self, coordinator: ClusterCoordinator) -> None:
        now = coordinator.metrics()
        ended = now["closure_execution"]["count"]
        if ended != self._before or not now["queued"] + now["in_flight"]:
            self._before, self._since = ended, time.monotonic()
        elif time.monotonic() - self._since >= self._patience_s:
            print(
                f"no function of the coordinator has ended for {self._patience_s:g} s: "
                f"{now['queued']} are queued, {now['in_flight']} run on {now['workers_found']} "
                "workers; the stacks:",
                file=sys.stderr, flush=True,
            )  # fmt: skip
            faulthandler.dump_traceback(2)  # Standard error, whatever Python calls so.
            self._since = time.monotonic()


def _calling(function: ConcreteFunction) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.__name__ = function.name
    return call


def _fetched(leaf: Any) -> Any:
    if isinstance(leaf, PerWorkerVariable):
        return [value.numpy()[()] for value in leaf.read_all()]
    return leaf.fetch() if isinstance(leaf, RemoteValue) else leaf


def _no_variables(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
    raise ValueError(
        "a variable is made in the function of a dataset of workers: make it outside, in "
        "strategy.scope()"
    )


def _from_environment(name: str, otherwise: float) -> float:
    """A number that an environment variable says."""
    text = os.environ.get(name, "")
    if not text:
        return otherwise
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; it must be a number") from None
