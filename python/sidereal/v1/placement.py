"""Where the nodes of a graph would run on a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import _native
from ..cluster_spec import ClusterSpec

if TYPE_CHECKING:
    from .graph import Graph


@dataclass(frozen=True)
class PlacedVariable:
    """A variable, by the name it is shared by; `value` is "float32[784,100]". bytes: 0 where an
    extent is not known."""

    name: str
    device: str
    value: str
    bytes: int


@dataclass(frozen=True)
class TaskLoad:
    """What one task has to hold (variables, and their bytes) and to run (nodes)."""

    task: str
    variables: int
    bytes: int
    nodes: int


@dataclass(frozen=True)
class PlacementReport:
    """What placing a graph on a cluster decides. str() is a table.

    devices: full names, by name of the node. imbalance: most bytes of a task over the mean, of the
    tasks of jobs that hold variables; 0 without any.
    """

    devices: dict[str, str]
    variables: list[PlacedVariable]
    tasks: list[TaskLoad]
    imbalance: float
    text: str = field(repr=False)

    def __str__(self) -> str:
        return self.text


def placement_report(
    graph: Graph, cluster: Any, master: str = "", allow_soft_placement: bool = False
) -> PlacementReport:
    """Where a session on the servers of `cluster` would put the nodes and variables of `graph`;
    nobody is asked.

    cluster: what ClusterSpec takes. master: the task of the session's server, where nodes without
    a device run ("/job:worker/task:0"); by default the cluster's first. The same as
    `sidereal graph placement`. Errors: InvalidArgumentError for a graph that cannot be placed, and
    a cluster or master that is none."""
    devices, variables, tasks, imbalance, text = _native.placement(
        graph.native, ClusterSpec(cluster)._native, master, allow_soft_placement
    )
    return PlacementReport(
        devices,
        [PlacedVariable(*variable) for variable in variables],
        [TaskLoad(*task) for task in tasks],
        imbalance,
        text,
    )
