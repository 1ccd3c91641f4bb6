"""Programs that run on several machines (tf.distribute)."""

from . import cluster_resolver

__all__ = ["cluster_resolver"]
