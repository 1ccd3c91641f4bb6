"""Models that train, evaluate, predict and are exported (tf.estimator).

import sidereal.v1 as tf

classifier = tf.estimator.DNNClassifier(
    [64, 32], [tf.feature_column.numeric_column("x", 4)], model_dir="/tmp/model"
)
classifier.train(input_fn, steps=1000)
print(classifier.evaluate(eval_input_fn))
"""

import types as _types

from ..v1 import train as _train
from ._canned import (
    DNNClassifier,
    DNNLinearCombinedClassifier,
    DNNLinearCombinedRegressor,
    DNNRegressor,
    LinearClassifier,
    LinearRegressor,
)
from ._estimator import Estimator
from ._exporters import BestExporter, Exporter, FinalExporter, LatestExporter
from ._inputs import (
    ServingInputReceiver,
    SupervisedInputReceiver,
    TensorServingInputReceiver,
    build_parsing_serving_input_receiver_fn,
    build_raw_serving_input_receiver_fn,
    build_raw_supervised_input_receiver_fn,
    numpy_input_fn,
)
from ._parsing import classifier_parse_example_spec, regressor_parse_example_spec
from ._run_config import RunConfig
from ._spec import (
    ClassificationOutput,
    EstimatorSpec,
    ExportOutput,
    ModeKeys,
    PredictOutput,
    RegressionOutput,
)
from ._training import EvalSpec, TrainSpec, train_and_evaluate
from ._warm_start import VocabInfo, WarmStartSettings

CheckpointSaverHook = _train.CheckpointSaverHook
CheckpointSaverListener = _train.CheckpointSaverListener
FeedFnHook = _train.FeedFnHook
FinalOpsHook = _train.FinalOpsHook
GlobalStepWaiterHook = _train.GlobalStepWaiterHook
LoggingTensorHook = _train.LoggingTensorHook
NanLossDuringTrainingError = _train.NanLossDuringTrainingError
NanTensorHook = _train.NanTensorHook
ProfilerHook = _train.ProfilerHook
SecondOrStepTimer = _train.SecondOrStepTimer
SessionRunArgs = _train.SessionRunArgs
SessionRunContext = _train.SessionRunContext
SessionRunHook = _train.SessionRunHook
SessionRunValues = _train.SessionRunValues
StepCounterHook = _train.StepCounterHook
StopAtStepHook = _train.StopAtStepHook
SummarySaverHook = _train.SummarySaverHook

#: As in tf.estimator.export.
export = _types.SimpleNamespace(
    ClassificationOutput=ClassificationOutput,
    ExportOutput=ExportOutput,
    PredictOutput=PredictOutput,
    RegressionOutput=RegressionOutput,
    ServingInputReceiver=ServingInputReceiver,
    TensorServingInputReceiver=TensorServingInputReceiver,
    build_parsing_serving_input_receiver_fn=build_parsing_serving_input_receiver_fn,
    build_raw_serving_input_receiver_fn=build_raw_serving_input_receiver_fn,
)

#: As in tf.estimator.experimental.
experimental = _types.SimpleNamespace(
    SupervisedInputReceiver=SupervisedInputReceiver,
    build_raw_supervised_input_receiver_fn=build_raw_supervised_input_receiver_fn,
)

#: As in tf.compat.v1.estimator.inputs.
inputs = _types.SimpleNamespace(numpy_input_fn=numpy_input_fn)

__all__ = [
    "BestExporter", "CheckpointSaverHook", "CheckpointSaverListener", "DNNClassifier",
    "DNNLinearCombinedClassifier", "DNNLinearCombinedRegressor", "DNNRegressor", "Estimator",
    "EstimatorSpec", "EvalSpec", "Exporter", "FeedFnHook", "FinalExporter", "FinalOpsHook",
    "GlobalStepWaiterHook", "LatestExporter", "LinearClassifier", "LinearRegressor",
    "LoggingTensorHook", "ModeKeys", "NanLossDuringTrainingError", "NanTensorHook", "ProfilerHook",
    "RunConfig", "SecondOrStepTimer", "SessionRunArgs", "SessionRunContext", "SessionRunHook",
    "SessionRunValues", "StepCounterHook", "StopAtStepHook", "SummarySaverHook", "TrainSpec",
    "VocabInfo", "WarmStartSettings", "classifier_parse_example_spec", "experimental", "export",
    "inputs", "regressor_parse_example_spec", "train_and_evaluate",
]  # fmt: skip
