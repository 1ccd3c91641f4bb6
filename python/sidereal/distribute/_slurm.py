"""The cluster that Slurm started this program in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping

from ..cluster_spec import ClusterSpec
from ._resolver import ClusterResolver

_GPU_LIST_SECONDS = 30.0


def _split(text: str) -> Iterator[str]:
    """At commas outside of brackets."""
    start = depth = 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise ValueError(f"'{text}' is no list of hosts: its brackets do not match")
        if char == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    if depth != 0:
        raise ValueError(f"'{text}' is no list of hosts: its brackets do not match")
    yield text[start:]


def _numbers(text: str) -> Iterator[str]:
    """Of "1-3,07": 1, 2, 3, 07, as long as they are written."""
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise ValueError(f"'{part}' in a list of hosts is no number and no range of numbers")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first) or int(last) - int(first) > 1_000_000:
            raise ValueError(f"'{part}' in a list of hosts is no range of numbers")
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def expand_hostlist(hostlist: str) -> list[str]:
    """Names of hosts as Slurm writes many of them: "n[1-2],m5,o[03-04,6]" is n1, n2, m5, o03, o04,
    o6. ValueError for another form."""
    out: list[str] = []
    for part in _split(hostlist):
        names = [""]
        for text, inside in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", part):
            more = list(_numbers(inside)) if not text else [text]
            names = [name + one for name in names for one in more]
        if names == [""] or any(" " in name for name in names):
            raise ValueError(f"'{hostlist}' is no list of hosts")
        out.extend(names)
    return out


def expand_tasks_per_node(tasks_per_node: str) -> list[int]:
    """How many tasks each host has: "3(x2),2,1" is 3, 3, 2, 1. ValueError for another form."""
    out: list[int] = []
    for part in tasks_per_node.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None or int(match[2] or 1) > 1_000_000:
            raise ValueError(f"'{tasks_per_node}' does not say how many tasks each host has")
        out.extend([int(match[1])] * int(match[2] or 1))
    return out


def _variable(name: str) -> str:
    value = os.environ.get(f"SLURM_{name}")
    if value is None:
        raise RuntimeError(f"SLURM_{name} is not set. Not running inside a SLURM step?")
    return value


def _count_gpus() -> int:
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    listed = subprocess.run(
        [program, "--list-gpus"],
        capture_output=True,
        text=True,
        timeout=_GPU_LIST_SECONDS,
        check=False,
    )
    return len(listed.stdout.splitlines()) if listed.returncode == 0 else 0


class SlurmClusterResolver(ClusterResolver):
    """The cluster of a Slurm step, from the variables that `srun` sets for each of its tasks
    (tf.distribute.cluster_resolver.SlurmClusterResolver).

    Tasks go to jobs in the order of their names, and to hosts in the order of theirs (as text:
    "n10" is before "n2"); the first task on a host listens on `port_base`, the next on the port
    after it. Which task this one is follows from where Slurm has put its rank.

    jobs: how many tasks each job has; None: all are workers.
    gpus_per_node, gpus_per_task: None: as many as nvidia-smi lists, shared evenly.
    tasks_per_node: an int for all hosts instead of what Slurm says.
    auto_set_gpu: sets CUDA_VISIBLE_DEVICES to the GPUs of this task, where there are any.

    RuntimeError outside of a step, for more GPUs than there are, and when `jobs` has another number
    of tasks than the step.
    """

    def __init__(
        self,
        jobs: Mapping[str, int] | None = None,
        port_base: int = 8888,
        gpus_per_node: int | None = None,
        gpus_per_task: int | None = None,
        tasks_per_node: int | None = None,
        auto_set_gpu: bool = True,
        rpc_layer: str | None = "grpc",
    ) -> None:
        rank = int(_variable("PROCID"))
        if jobs is None:
            jobs = {"worker": int(_variable("STEP_NUM_TASKS"))}
        hosts = expand_hostlist(_variable("STEP_NODELIST"))
        counts = (
            expand_tasks_per_node(_variable("STEP_TASKS_PER_NODE"))
            if tasks_per_node is None
            else [tasks_per_node] * len(hosts)
        )
        if len(counts) != len(hosts):
            raise RuntimeError(
                f"Slurm names {len(hosts)} hosts and tasks for {len(counts)} of them"
            )
        total = _count_gpus() if gpus_per_node is None else gpus_per_node
        most = max(counts)
        share = total // most if gpus_per_task is None and most else gpus_per_task or 0
        if most * share > total:
            raise RuntimeError(
                f"Requested more GPUs per node than available: {most} tasks of {share} GPUs each "
                f"on a node with {total}"
            )
        if sum(jobs.values()) != sum(counts):
            raise RuntimeError(
                f"Requested {sum(jobs.values())} tasks but only {sum(counts)} were assigned."
            )
        if not 0 <= rank < sum(counts):
            raise RuntimeError(f"SLURM_PROCID is {rank}; the step has {sum(counts)} tasks")
        places = [(host, at) for host, count in zip(hosts, counts) for at in range(count)]
        in_order = sorted(places)
        addresses = [f"{host}:{port_base + at}" for host, at in in_order]
        own = in_order.index(places[rank])
        cluster = {}
        first = 0
        for job, count in sorted(jobs.items()):
            cluster[job] = addresses[first : first + count]
            if first <= own < first + count:
                self.task_type, self.task_id = job, own - first
            first += count
        self._cluster = ClusterSpec(cluster)
        self.rpc_layer = rpc_layer
        if share:
            self._num_accelerators = {"GPU": share}
        if auto_set_gpu and share:
            at = places[rank][1] * share
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(at, at + share)))

    def cluster_spec(self) -> ClusterSpec:
        return self._cluster

    def get_task_info(self) -> tuple[str | None, int | None]:
        """The job and the index of this task."""
        return self.task_type, self.task_id
