"""Clusters as programs describe them (tf.train)."""

from .cluster_spec import ClusterDef, ClusterDeviceFilters, ClusterSpec, JobDef
from .server import Server, ServerDef

__all__ = ["ClusterDef", "ClusterDeviceFilters", "ClusterSpec", "JobDef", "Server", "ServerDef"]
