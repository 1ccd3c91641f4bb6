"""Who is in a cluster (tf.train.ClusterSpec)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _native, errors
from .device_spec import DeviceSpec

#: What a ClusterSpec is made of: addresses of each job, by place or by task index.
ClusterDict = Mapping[str, Sequence[str] | Mapping[Any, str]]


@dataclass(repr=False)
class JobDef:
    """One job (tf.train.JobDef): its name, and the addresses of its tasks by index."""

    name: str = ""
    tasks: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f'name: "{_escaped(self.name)}"']
        for index, address in sorted(self.tasks.items()):
            # A key of 0 is the default one and not written.
            key = f"  key: {index}\n" if index else ""
            lines.append(f'tasks {{\n{key}  value: "{_escaped(address)}"\n}}')
        return "\n".join(lines) + "\n"

    __repr__ = __str__


@dataclass(repr=False)
class ClusterDef:
    """A cluster as a message (tf.train.ClusterDef); str() is its protobuf text."""

    job: list[JobDef] = field(default_factory=list)

    def __str__(self) -> str:
        out = ""
        for job in self.job:
            inner = "".join(f"  {line}\n" for line in str(job).splitlines())
            out += f"job {{\n{inner}}}\n"
        return out

    __repr__ = __str__


def _escaped(text: str) -> str:
    """As protobuf's text form writes bytes."""
    out = ""
    for byte in text.encode():
        char = chr(byte)
        if char in '"\\':
            out += "\\" + char
        elif 32 <= byte < 127:
            out += char
        else:
            out += {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char, f"\\{byte:03o}")
    return out


def _tasks_of(job: str, tasks: Any) -> dict[int, str]:
    if isinstance(tasks, Mapping):
        try:
            found = {int(index): address for index, address in tasks.items()}
        except (TypeError, ValueError) as error:
            raise type(error)(f"job '{job}' has a task index that is no number: {error}") from None
        if len(found) != len(tasks):
            raise ValueError(f"job '{job}' has a task index twice")
    elif isinstance(tasks, (list, tuple)):
        found = dict(enumerate(tasks))
    else:
        raise TypeError(
            f"the tasks of job '{job}' are {tasks!r}; give a list of addresses or a dict from task "
            "index to address"
        )
    for index, address in found.items():
        if not isinstance(address, str):
            raise TypeError(f"the address of task {index} of job '{job}' is {address!r}, no string")
    return found


class ClusterSpec:
    """The jobs of a cluster and the network addresses of their tasks, immutable
    (tf.train.ClusterSpec).

    cluster: a dict from job to a list of addresses, or to a dict from task index to address (the
    tasks between may be missing); a ClusterDef; or another ClusterSpec. TypeError otherwise, and
    for names and addresses that are not strings; InvalidArgumentError for a name that no job can
    have, and a negative index. Asking for what is not there raises ValueError.
    """

    def __init__(self, cluster: ClusterDict | ClusterDef | ClusterSpec) -> None:
        self._native = _native.ClusterSpec()
        jobs: Any
        if isinstance(cluster, ClusterSpec):
            jobs = cluster.as_dict().items()
        elif isinstance(cluster, ClusterDef):
            jobs = [(job.name, job.tasks) for job in cluster.job]
        elif isinstance(cluster, Mapping):
            jobs = cluster.items()
        else:
            raise TypeError(
                f"a cluster cannot be made of {cluster!r}; give a dict from job to addresses, a "
                "ClusterDef or a ClusterSpec"
            )
        for job, tasks in jobs:
            if not isinstance(job, str):
                raise TypeError(f"the name of a job is {job!r}, no string")
            self._native.add_job(job, _tasks_of(job, tasks))

    def __bool__(self) -> bool:
        return bool(self.jobs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClusterSpec):
            return NotImplemented
        return bool(self._native == other._native)

    def __hash__(self) -> int:
        return hash(self._native.to_json())

    def __str__(self) -> str:
        return str(self._native)

    __repr__ = __str__

    @property
    def jobs(self) -> list[str]:
        """Names, sorted."""
        return self._native.jobs

    def as_dict(self) -> dict[str, list[str] | dict[int, str]]:
        """A dense job as a list, another one, and one without tasks, as a dict."""
        return {
            job: list(self._tasks(job).values()) if self._native.is_dense(job) else self._tasks(job)
            for job in self.jobs
        }

    def as_cluster_def(self) -> ClusterDef:
        """As a message: jobs sorted by name, tasks by index."""
        return ClusterDef([JobDef(job, self._tasks(job)) for job in self.jobs])

    def to_json(self) -> str:
        """As as_dict(), for TF_CONFIG and the command line."""
        return self._native.to_json()

    def num_tasks(self, job_name: str) -> int:
        """How many tasks of the job have an address."""
        return len(self._tasks(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Indices of the job's tasks, sorted."""
        return list(self._tasks(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """The address of one task."""
        try:
            return self._native.task_address(job_name, task_index)
        except errors.NotFoundError as error:
            raise ValueError(str(error)) from None

    def job_tasks(self, job_name: str) -> list[str | None]:
        """Addresses by index, up to the highest; None where there is no task."""
        self._tasks(job_name)
        return self._native.job_tasks(job_name)

    def _tasks(self, job: str) -> dict[int, str]:
        try:
            return self._native.tasks(job)
        except errors.NotFoundError as error:
            raise ValueError(str(error)) from None


class ClusterDeviceFilters:
    """Which devices of other tasks a task uses (tf.train.experimental.ClusterDeviceFilters):

        filters = ClusterDeviceFilters()
        filters.set_device_filters("worker", 0, ["/job:ps", "/job:worker/replica:0/task:0"])

    A task sees its own devices always; one without filters sees all.
    """

    def __init__(self) -> None:
        self._filters: dict[tuple[str, int], list[DeviceSpec]] = {}

    def set_device_filters(
        self, job_name: str, task_index: int, device_filters: Sequence[str]
    ) -> None:
        """Says what the task `task_index` of `job_name` sees: devices that have all fields of one
        of these names. TypeError or ValueError for what is no job, no index, no device."""
        if isinstance(device_filters, str) or not all(
            isinstance(name, str) for name in device_filters
        ):
            raise TypeError(f"device_filters is {device_filters!r}; it must be a list of names")
        if not isinstance(job_name, str) or isinstance(task_index, bool):
            raise TypeError(f"({job_name!r}, {task_index!r}) is no job and index of a task")
        filters = [DeviceSpec.from_string(name) for name in device_filters]
        self._filters[job_name, int(task_index)] = filters

    def device_filters(self, job_name: str, task_index: int) -> list[str]:
        """The filters of a task; none: it sees everything."""
        return [spec.to_string() for spec in self._filters.get((job_name, task_index), [])]

    def sees(self, job_name: str, task_index: int, device: str) -> bool:
        """Whether a task sees a device, given by its full name."""
        there = DeviceSpec.from_string(device)
        filters = self._filters.get((job_name, task_index))
        if not filters or (there.job == job_name and there.task == task_index):
            return True
        return any(there.make_merged_spec(spec) == there for spec in filters)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClusterDeviceFilters):
            return NotImplemented
        return self._filters == other._filters

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        filters = {key: [str(spec) for spec in specs] for key, specs in self._filters.items()}
        return f"ClusterDeviceFilters({filters})"
