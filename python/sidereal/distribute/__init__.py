"""Programs that run on several machines (tf.distribute)."""

from ..server import Server
from . import cluster_resolver, coordinator, distribute_utils, experimental
from ._strategy import (
    InputContext,
    ReduceOp,
    ReplicaContext,
    Strategy,
    StrategyExtended,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
)
from .parameter_server_strategy import ParameterServerStrategy

__all__ = [
    "InputContext", "ParameterServerStrategy", "ReduceOp", "ReplicaContext", "Server", "Strategy",
    "StrategyExtended", "cluster_resolver", "coordinator", "distribute_utils", "experimental",
    "get_replica_context", "get_strategy", "has_strategy", "in_cross_replica_context",
]  # fmt: skip
