"""Clusters as programs describe them (tf.train)."""

from .cluster_spec import ClusterDef, ClusterSpec, JobDef
from .server import Server, ServerDef

__all__ = ["ClusterDef", "ClusterSpec", "JobDef", "Server", "ServerDef"]
