"""Programs that run on several machines (tf.distribute)."""

from ..server import Server
from . import cluster_resolver, experimental

__all__ = ["Server", "cluster_resolver", "experimental"]
