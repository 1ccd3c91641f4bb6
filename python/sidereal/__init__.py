"""Training of large sparse models on parameter servers and workers, and tensors to write them with.

    import sidereal as sr

    model = sr.Model(seed=7)
    rows = sr.keras.layers.Embedding(10_000, 16)(model.input("ids", sr.int64, (8,)))
    model.compile(sr.keras.layers.FM()(rows), optimizer=sr.optimizers.Adagrad(0.05))
    with sr.LocalCluster(ps=2, workers=2) as cluster:
        model.fit({"ids": ids, "label": label}, cluster=cluster, epochs=3)
        print(model.evaluate({"ids": ids, "label": label}))
"""

from . import _control_statements, _tensor  # puts methods on tensors, and gives operators

# isort: split
from . import (
    autograph,
    config,
    data,
    dtypes,
    errors,
    feature_column,
    io,
    keras,
    lookup,
    models,
    nest,
    onnx,
    ops,
    optimizers,
    profiler,
    queue,
    saved_model,
    summary,
    train,
)
from ._dispatch import convert as convert_to_tensor
from ._hot_rows import HotRow
from ._native import EvalResult, FitResult, Output, Progress, TaskStats, Tensor, __version__
from .cluster import Cluster, LocalCluster, RemoteCluster
from .device_spec import DeviceSpec
from .dtypes import (
    as_dtype,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .eager_contexts import (
    control_dependencies,
    device,
    executing_eagerly,
    get_logger,
    group,
    init_scope,
    inside_function,
    name_scope,
    no_op,
)
from .follower import Follower, LookupClient
from .function import RetracingWarning, TensorSpec, function
from .gradients import GradientTape, IndexedSlices, custom_gradient, gradients
from .keras import initializers, losses, metrics
from .model import Model, VariableInfo
from .module import Module
from .ops import debugging, linalg, nn, ragged, random, sparse, strings
from .ops.array import *  # noqa: F403
from .ops.basic import cast, identity, stop_gradient
from .ops.clipping import clip_by_global_norm, clip_by_norm, global_norm
from .ops.contraction import *  # noqa: F403
from .ops.control import *  # noqa: F403
from .ops.debugging import Assert, assert_equal, assert_greater, assert_less, print  # noqa: A004
from .ops.host import *  # noqa: F403
from .ops.linalg import norm
from .ops.math import *  # noqa: F403
from .ops.ragged import RaggedTensor
from .ops.sparse import SparseTensor
from .ops.strings import as_string
from .security import SecurityOptions
from .table_file import TableFile, write_tables
from .tensor_shape import TensorShape
from .tensors import constant, from_dlpack, is_tensor
from .variable import (
    Variable,
    VariableAggregation,
    VariableSynchronization,
    variable_creator_scope,
)

# isort: split
from . import compat, distribute, estimator  # have graphs of v1, which needs all that is above

# isort: split
from . import features

# Under this name and not that of the module, whose functions are members of the package as well.
math = ops.math

# As TensorFlow has them besides.
newaxis = None
bool = bool_  # noqa: A001
half = float16
double = float64
constant_initializer = initializers.Constant
ones_initializer = initializers.Ones
random_normal_initializer = initializers.RandomNormal
random_uniform_initializer = initializers.RandomUniform
zeros_initializer = initializers.Zeros

__all__ = [
    "Assert",
    "Cluster",
    "DeviceSpec",
    "EvalResult",
    "FitResult",
    "Follower",
    "GradientTape",
    "HotRow",
    "IndexedSlices",
    "LocalCluster",
    "LookupClient",
    "Model",
    "Module",
    "Output",
    "Progress",
    "RaggedTensor",
    "RemoteCluster",
    "RetracingWarning",
    "SecurityOptions",
    "SparseTensor",
    "TableFile",
    "TaskStats",
    "Tensor",
    "TensorShape",
    "TensorSpec",
    "Variable",
    "VariableAggregation",
    "VariableInfo",
    "VariableSynchronization",
    "__version__",
    "as_dtype",
    "as_string",
    "assert_equal",
    "assert_greater",
    "assert_less",
    "autograph",
    "bfloat16",
    "bool",
    "bool_",
    "cast",
    "clip_by_global_norm",
    "clip_by_norm",
    "compat",
    "config",
    "constant",
    "constant_initializer",
    "control_dependencies",
    "convert_to_tensor",
    "custom_gradient",
    "data",
    "debugging",
    "device",
    "distribute",
    "double",
    "dtypes",
    "errors",
    "estimator",
    "executing_eagerly",
    "feature_column",
    "features",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "function",
    "get_logger",
    "global_norm",
    "gradients",
    "group",
    "half",
    "identity",
    "init_scope",
    "initializers",
    "inside_function",
    "int16",
    "int32",
    "int64",
    "int8",
    "io",
    "is_tensor",
    "keras",
    "linalg",
    "lookup",
    "losses",
    "math",
    "metrics",
    "models",
    "name_scope",
    "nest",
    "newaxis",
    "nn",
    "no_op",
    "norm",
    "ones_initializer",
    "onnx",
    "ops",
    "optimizers",
    "print",
    "profiler",
    "queue",
    "ragged",
    "random",
    "random_normal_initializer",
    "random_uniform_initializer",
    "saved_model",
    "sparse",
    "stop_gradient",
    "string",
    "strings",
    "summary",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "variable_creator_scope",
    "write_tables",
    "zeros_initializer",
    *ops.exported,
]
