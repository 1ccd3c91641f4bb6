"""Clusters as programs describe them, and what is saved of a training (tf.train)."""

from .checkpoint import (
    Checkpoint,
    CheckpointOptions,
    CheckpointReader,
    list_variables,
    load_checkpoint,
    load_variable,
)
from .checkpoint_management import (
    CheckpointState,
    checkpoints_iterator,
    get_checkpoint_state,
    latest_checkpoint,
)
from .checkpoint_manager import CheckpointManager
from .cluster_spec import ClusterDef, ClusterDeviceFilters, ClusterSpec, JobDef
from .example import BytesList, Example, Feature, Features, FloatList, Int64List
from .server import Server, ServerDef

__all__ = [
    "BytesList", "Checkpoint", "CheckpointManager", "CheckpointOptions", "CheckpointReader",
    "CheckpointState", "ClusterDef", "ClusterDeviceFilters", "ClusterSpec", "Example", "Feature",
    "Features", "FloatList", "Int64List", "JobDef", "Server", "ServerDef",
    "checkpoints_iterator", "get_checkpoint_state", "latest_checkpoint", "list_variables",
    "load_checkpoint", "load_variable",
]  # fmt: skip
