"""Clusters as programs describe them (tf.train)."""

from .cluster_spec import ClusterDef, ClusterSpec, JobDef

__all__ = ["ClusterDef", "ClusterSpec", "JobDef"]
