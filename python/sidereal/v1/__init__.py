"""TensorFlow 1's way: a default graph, placeholders and sessions.

    import sidereal.v1 as sr

    x = sr.placeholder(sr.float32, [None, 3], name="x")
    y = sr.reduce_sum(x * 2.0)
    with sr.Session() as session:
        session.run(y, feed_dict={x: [[1.0, 2.0, 3.0]]})

Everything of `sidereal` is here under the same name, but ops add nodes to the default graph instead
of running at once. Sessions run in this process or, with a target, on the servers of a cluster.
Results are NumPy arrays.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import sidereal as _sr

from .. import accumulators as _accumulators
from .. import checkpoint_management as _checkpoints
from .. import lookup as _lookup
from .. import queue as _queue
from .._dispatch import apply, convert
from .._native import Output as Tensor
from .._resources import Resource
from .._run_metadata import RunMetadata, RunOptions, Timeline
from .._tensorboard import MESSAGES
from ..partitioners import (
    fixed_size_partitioner,
    min_max_variable_partitioner,
    variable_axis_size_partitioner,
)
from . import app, layers, logging, losses, metrics, summary
from . import embedding as _embedding
from . import feature_column as _feature_column
from . import initializers as _initializers
from . import renamed as _renamed
from .basic_session_run_hooks import (
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    ProfilerHook,
    SecondOrStepTimer,
    StalenessHook,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
)
from .behavior import (
    disable_eager_execution,
    disable_v2_behavior,
    enable_eager_execution,
    enable_resource_variables,
    enable_v2_behavior,
)
from .bounded_staleness import BoundedStalenessHook
from .checkpoint_saver_hook import CheckpointSaverHook, CheckpointSaverListener
from .config import ConfigProto, GPUOptions, GraphOptions, OptimizerOptions
from .coordinator import Coordinator, QueueRunner, add_queue_runner, start_queue_runners
from .default_session import get_default_session
from .device import (
    GreedyLoadBalancingStrategy,
    RandomStrategy,
    byte_size_load_fn,
    replica_device_setter,
)
from .graph import (
    Graph,
    GraphKeys,
    add_to_collection,
    add_to_collections,
    colocate_with,
    constant,
    container,
    control_dependencies,
    device,
    get_collection,
    get_collection_ref,
    get_default_graph,
    group,
    in_default_graph,
    init_scope,
    name_scope,
    no_op,
    placeholder,
    reset_default_graph,
)
from .initializers import (
    constant_initializer,
    glorot_normal_initializer,
    glorot_uniform_initializer,
    ones_initializer,
    random_normal_initializer,
    random_uniform_initializer,
    truncated_normal_initializer,
    uniform_unit_scaling_initializer,
    variance_scaling_initializer,
    zeros_initializer,
)
from .input_pipeline_hook import CheckpointInputPipelineHook
from .learning_rates import (
    cosine_decay,
    exponential_decay,
    inverse_time_decay,
    natural_exp_decay,
    piecewise_constant,
    polynomial_decay,
)
from .lost_variables import LostVariables
from .monitored_session import (
    MonitoredSession,
    MonitoredTrainingSession,
    SingularMonitoredSession,
)
from .operation import Operation
from .partitioned import PartitionedVariable
from .placement import PlacementReport, placement_report
from .renamed import (
    Print,
    div,
    placeholder_with_default,
    py_func,
    reduce_all,
    reduce_any,
    reduce_logsumexp,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
    to_bfloat16,
    to_double,
    to_float,
    to_int32,
    to_int64,
    tuple,  # noqa: A004
)
from .saveable import make_saveable_from_iterator
from .saver import Saver, export_meta_graph, import_meta_graph
from .scaffold import Scaffold
from .scopes import (
    AUTO_REUSE,
    VariableScope,
    get_local_variable,
    get_variable,
    get_variable_scope,
    variable_scope,
)
from .session import InteractiveSession, Session
from .session_creator import ChiefSessionCreator, SessionCreator, WorkerSessionCreator
from .session_manager import SessionManager
from .session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from .supervisor import Supervisor, basic_train_loop
from .sync_replicas import SyncReplicasOptimizer
from .training import (
    AdadeltaOptimizer,
    AdagradDecayOptimizer,
    AdagradOptimizer,
    AdamAsyncOptimizer,
    AdamOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    Optimizer,
    RMSPropOptimizer,
    RuleOptimizer,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
    global_step,
    gradients,
)
from .variables import (
    Variable,
    assign,
    assign_add,
    assign_sub,
    global_variables,
    global_variables_initializer,
    is_variable_initialized,
    local_variables,
    local_variables_initializer,
    model_variables,
    report_uninitialized_variables,
    scatter_add,
    scatter_sub,
    scatter_update,
    tables_initializer,
    trainable_variables,
    variables_initializer,
)

initialize_all_variables = global_variables_initializer

train = types.SimpleNamespace(
    **{name: getattr(_sr.train, name) for name in _sr.train.__all__},
    AdadeltaOptimizer=AdadeltaOptimizer,
    AdagradDecayOptimizer=AdagradDecayOptimizer,
    AdagradOptimizer=AdagradOptimizer,
    AdamAsyncOptimizer=AdamAsyncOptimizer,
    AdamOptimizer=AdamOptimizer,
    BoundedStalenessHook=BoundedStalenessHook,
    CheckpointSaverHook=CheckpointSaverHook,
    CheckpointSaverListener=CheckpointSaverListener,
    ChiefSessionCreator=ChiefSessionCreator,
    Coordinator=Coordinator,
    FeedFnHook=FeedFnHook,
    FinalOpsHook=FinalOpsHook,
    FtrlOptimizer=FtrlOptimizer,
    GlobalStepWaiterHook=GlobalStepWaiterHook,
    GradientDescentOptimizer=GradientDescentOptimizer,
    LoggingTensorHook=LoggingTensorHook,
    LostVariables=LostVariables,
    MomentumOptimizer=MomentumOptimizer,
    MonitoredSession=MonitoredSession,
    MonitoredTrainingSession=MonitoredTrainingSession,
    NanLossDuringTrainingError=NanLossDuringTrainingError,
    NanTensorHook=NanTensorHook,
    NewCheckpointReader=_sr.train.load_checkpoint,
    Optimizer=Optimizer,
    ProfilerHook=ProfilerHook,
    QueueRunner=QueueRunner,
    RMSPropOptimizer=RMSPropOptimizer,
    RuleOptimizer=RuleOptimizer,
    Saver=Saver,
    Scaffold=Scaffold,
    SecondOrStepTimer=SecondOrStepTimer,
    SessionCreator=SessionCreator,
    SessionManager=SessionManager,
    SessionRunArgs=SessionRunArgs,
    SessionRunContext=SessionRunContext,
    SessionRunHook=SessionRunHook,
    SessionRunValues=SessionRunValues,
    SingularMonitoredSession=SingularMonitoredSession,
    StalenessHook=StalenessHook,
    StepCounterHook=StepCounterHook,
    StopAtStepHook=StopAtStepHook,
    SummarySaverHook=SummarySaverHook,
    Supervisor=Supervisor,
    SyncReplicasOptimizer=SyncReplicasOptimizer,
    WorkerSessionCreator=WorkerSessionCreator,
    add_queue_runner=add_queue_runner,
    basic_train_loop=basic_train_loop,
    checkpoint_exists=_checkpoints.checkpoint_exists,
    cosine_decay=cosine_decay,
    create_global_step=create_global_step,
    exponential_decay=exponential_decay,
    export_meta_graph=export_meta_graph,
    get_checkpoint_mtimes=_checkpoints.get_checkpoint_mtimes,
    get_global_step=get_global_step,
    get_or_create_global_step=get_or_create_global_step,
    global_step=global_step,
    import_meta_graph=import_meta_graph,
    inverse_time_decay=inverse_time_decay,
    natural_exp_decay=natural_exp_decay,
    piecewise_constant=piecewise_constant,
    polynomial_decay=polynomial_decay,
    remove_checkpoint=_checkpoints.remove_checkpoint,
    replica_device_setter=replica_device_setter,
    start_queue_runners=start_queue_runners,
    update_checkpoint_state=_checkpoints.update_checkpoint_state,
)

contrib = types.SimpleNamespace(
    layers=types.SimpleNamespace(
        l1_regularizer=_renamed.l1_regularizer,
        l2_regularizer=_renamed.l2_regularizer,
        xavier_initializer=_renamed.xavier_initializer,
    ),
    training=types.SimpleNamespace(
        GreedyLoadBalancingStrategy=GreedyLoadBalancingStrategy,
        RandomStrategy=RandomStrategy,
        byte_size_load_fn=byte_size_load_fn,
    )
)

initializers = types.SimpleNamespace(
    global_variables=global_variables_initializer,
    local_variables=local_variables_initializer,
    tables_initializer=tables_initializer,
    variance_scaling=_initializers.variance_scaling_initializer,
    constant=_initializers.constant_initializer,
    glorot_normal=_initializers.glorot_normal_initializer,
    glorot_uniform=_initializers.glorot_uniform_initializer,
    ones=_initializers.ones_initializer,
    random_normal=_initializers.random_normal_initializer,
    random_uniform=_initializers.random_uniform_initializer,
    truncated_normal=_initializers.truncated_normal_initializer,
    variables=variables_initializer,
    zeros=_initializers.zeros_initializer,
)

timeline = types.SimpleNamespace(Timeline=Timeline)

VERSION = __version__ = _sr.__version__

python_io = types.SimpleNamespace(
    TFRecordWriter=_sr.io.TFRecordWriter, tf_record_iterator=_sr.io.tf_record_iterator
)

test = types.SimpleNamespace(
    gpu_device_name=lambda: "",
    is_built_with_cuda=lambda: False,
    is_gpu_available=lambda cuda_only=False, min_cuda_compute_capability=None: False,
)

gfile = types.SimpleNamespace(
    Copy=_sr.io.gfile.copy,
    DeleteRecursively=_sr.io.gfile.rmtree,
    Exists=_sr.io.gfile.exists,
    FastGFile=_sr.io.gfile.GFile,
    GFile=_sr.io.gfile.GFile,
    Glob=_sr.io.gfile.glob,
    IsDirectory=_sr.io.gfile.isdir,
    ListDirectory=_sr.io.gfile.listdir,
    MakeDirs=_sr.io.gfile.makedirs,
    MkDir=_sr.io.gfile.mkdir,
    Open=_sr.io.gfile.GFile,
    Remove=_sr.io.gfile.remove,
    Rename=_sr.io.gfile.rename,
    Stat=_sr.io.gfile.stat,
    Walk=_sr.io.gfile.walk,
)


class _Namespace:
    """A module whose functions add to the default graph; with other ones of TensorFlow 1."""

    def __init__(self, module: Any, **functions: Any) -> None:
        self._module = module
        self.__dict__ |= functions

    def __getattr__(self, name: str) -> Any:
        return _wrapped(getattr(self._module, name))


nn = _Namespace(
    _sr.nn,
    embedding_lookup=_embedding.embedding_lookup,
    embedding_lookup_sparse=_embedding.embedding_lookup_sparse,
    safe_embedding_lookup_sparse=_embedding.safe_embedding_lookup_sparse,
    softmax_cross_entropy_with_logits_v2=_renamed.softmax_cross_entropy_with_logits_v2,
    xw_plus_b=_renamed.xw_plus_b,
)


data = _Namespace(
    _sr.data,
    experimental=types.SimpleNamespace(
        **vars(_sr.data.experimental),
        CheckpointInputPipelineHook=CheckpointInputPipelineHook,
        make_saveable_from_iterator=make_saveable_from_iterator,
    ),
)

feature_column = _Namespace(
    _sr.feature_column,
    input_layer=_feature_column.input_layer,
    linear_model=_feature_column.linear_model,
    shared_embedding_columns=_sr.feature_column.shared_embeddings,
)


def _wrapped(thing: Any) -> Any:
    if isinstance(thing, types.ModuleType) or thing is _lookup.experimental:
        return _Namespace(thing)
    if isinstance(thing, types.FunctionType):
        return in_default_graph(thing)
    if isinstance(thing, type) and issubclass(thing, _OF_OPS):
        cls: type = thing
        return _graph_class(cls)
    return thing


#: Names that TensorFlow 1 had at the top, and where they are now.
_MOVED = {
    "Assert": "debugging.Assert",
    "assert_equal": "debugging.assert_equal",
    "bool": "dtypes.bool_",
    "check_numerics": "debugging.check_numerics",
    "floordiv": "math.floordiv",
    "floormod": "math.floormod",
    "is_finite": "math.is_finite",
    "is_inf": "math.is_inf",
    "is_nan": "math.is_nan",
    "log": "math.log",
    "log_sigmoid": "math.log_sigmoid",
    "mod": "math.floormod",
    "random_normal": "random.normal",
    "random_shuffle": "random.shuffle",
    "random_uniform": "random.uniform",
    "segment_sum": "math.segment_sum",
    "set_random_seed": "random.set_seed",
    "truncated_normal": "random.truncated_normal",
    "unsorted_segment_sum": "math.unsorted_segment_sum",
    "FixedLenFeature": "io.FixedLenFeature",
    "FixedLenSequenceFeature": "io.FixedLenSequenceFeature",
    "SparseFeature": "io.SparseFeature",
    "SparseTensor": "sparse.SparseTensor",
    "VarLenFeature": "io.VarLenFeature",
    "as_string": "strings.as_string",
    "decode_csv": "io.decode_csv",
    "decode_raw": "io.decode_raw",
    "parse_example": "io.parse_example",
    "parse_single_example": "io.parse_single_example",
    "reduce_join": "strings.reduce_join",
    "regex_replace": "strings.regex_replace",
    "sparse_tensor_to_dense": "sparse.to_dense",
    "squared_difference": "math.squared_difference",
    "string_join": "strings.join",
    "string_strip": "strings.strip",
    "string_to_hash_bucket": "strings.to_hash_bucket",
    "string_to_hash_bucket_fast": "strings.to_hash_bucket_fast",
    "string_to_hash_bucket_strong": "strings.to_hash_bucket_strong",
    "string_to_number": "strings.to_number",
    "substr": "strings.substr",
}


@in_default_graph
def string_split(
    source: Any, sep: str | None = None, skip_empty: bool = True, delimiter: str = " "
) -> _sr.sparse.SparseTensor:
    """The pieces of a vector of strings between separators (tf.string_split), as a SparseTensor:
    every character of `sep` or `delimiter`, which is ASCII, separates; '' splits into bytes."""
    attrs = {
        "separator": delimiter if sep is None else sep, "each_byte": True, "skip_empty": skip_empty
    }  # fmt: skip
    values, splits = apply("StringSplit", (convert(source),), attrs)
    return _sr.RaggedTensor(values, splits).to_sparse()


#: Classes whose methods are ops.
_OF_OPS = (Resource, _lookup.StaticHashTable, _lookup.StaticVocabularyTable)


@functools.cache
def _graph_class(cls: type) -> type:
    """`cls` with methods that add to the default graph."""
    methods = {
        name: in_default_graph(getattr(cls, name))
        for name in dir(cls)
        if isinstance(getattr(cls, name), types.FunctionType)
        and (name in ("__init__", "__getitem__") or not name.startswith("_"))
    }
    return type(cls.__name__, (cls,), {**methods, "__doc__": cls.__doc__})


FIFOQueue = _graph_class(_queue.FIFOQueue)
PaddingFIFOQueue = _graph_class(_queue.PaddingFIFOQueue)
PriorityQueue = _graph_class(_queue.PriorityQueue)
RandomShuffleQueue = _graph_class(_queue.RandomShuffleQueue)
ConditionalAccumulator = _graph_class(_accumulators.ConditionalAccumulator)
SparseConditionalAccumulator = _graph_class(_accumulators.SparseConditionalAccumulator)


_HIDDEN = {"function", "GradientTape", "LocalCluster", "Model"}


def __getattr__(name: str) -> Any:
    if name == "flags":
        return app.flags
    if name == "estimator":
        # Above this package; it builds in graphs of its own.
        return _sr.estimator
    if name in _MOVED:
        module, _, member = _MOVED[name].partition(".")
        return _wrapped(getattr(getattr(_sr, module), member))
    if name in MESSAGES:
        return getattr(summary, name)
    if name.startswith("_") or name in _HIDDEN or not hasattr(_sr, name):
        raise AttributeError(f"module 'sidereal.v1' has no attribute '{name}'")
    return _wrapped(getattr(_sr, name))


__all__ = [
    "AUTO_REUSE", "VERSION", "ConditionalAccumulator", "ConfigProto", "FIFOQueue", "GPUOptions",
    "Graph", "GraphKeys", "GraphOptions", "InteractiveSession", "Operation", "OptimizerOptions",
    "PaddingFIFOQueue", "PartitionedVariable", "PlacementReport", "Print", "PriorityQueue",
    "RandomShuffleQueue", "RunMetadata", "RunOptions", "Session", "SparseConditionalAccumulator",
    "Tensor", "Variable", "VariableScope", "add_to_collection", "add_to_collections", "app",
    "assign", "assign_add", "assign_sub", "colocate_with", "constant", "constant_initializer",
    "container", "contrib", "control_dependencies", "device", "disable_eager_execution",
    "disable_v2_behavior", "div", "enable_eager_execution", "enable_resource_variables",
    "enable_v2_behavior", "feature_column", "fixed_size_partitioner", "get_collection",
    "get_collection_ref", "get_default_graph", "get_default_session", "get_local_variable",
    "get_variable", "get_variable_scope", "gfile", "global_variables",
    "global_variables_initializer", "glorot_normal_initializer", "glorot_uniform_initializer",
    "gradients", "group", "init_scope", "initialize_all_variables", "initializers",
    "is_variable_initialized", "layers", "local_variables", "local_variables_initializer",
    "logging", "losses", "metrics", "min_max_variable_partitioner", "model_variables", "name_scope",
    "nn", "no_op", "ones_initializer", "placeholder", "placeholder_with_default",
    "placement_report", "py_func", "python_io", "random_normal_initializer",
    "random_uniform_initializer", "reduce_all", "reduce_any", "reduce_logsumexp", "reduce_max",
    "reduce_mean", "reduce_min", "reduce_prod", "reduce_sum", "report_uninitialized_variables",
    "reset_default_graph", "scatter_add", "scatter_sub", "scatter_update", "string_split",
    "summary", "tables_initializer", "test", "timeline", "to_bfloat16", "to_double", "to_float",
    "to_int32", "to_int64", "train", "trainable_variables", "truncated_normal_initializer", "tuple",
    "uniform_unit_scaling_initializer", "variable_axis_size_partitioner", "variable_scope",
    "variables_initializer", "variance_scaling_initializer", "zeros_initializer",
]  # fmt: skip
