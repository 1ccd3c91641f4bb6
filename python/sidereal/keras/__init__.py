"""Keras' names, arguments and numbers on tensors and variables of sidereal: models of layers, and
what they are trained with.

    inputs = keras.Input((8,))
    outputs = keras.layers.Dense(1, "sigmoid")(keras.layers.Dense(16, "relu")(inputs))
    model = keras.Model(inputs, outputs)
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    model.fit(x, y, epochs=3)
"""

from . import (
    activations,
    applications,
    backend,
    callbacks,
    constraints,
    initializers,
    layers,
    losses,
    metrics,
    models,
    optimizers,
    preprocessing,
    regularizers,
    saving,
    utils,
)
from ._sidecar import SidecarEvaluator
from .initializers import Initializer
from .layers import Input, Layer
from .losses import Loss
from .metrics import Metric
from .models import Model, Sequential
from .optimizers import Optimizer
from .regularizers import Regularizer

__all__ = [
    "Initializer", "Input", "Layer", "Loss", "Metric", "Model", "Optimizer", "Regularizer",
    "Sequential", "SidecarEvaluator", "activations", "applications", "backend", "callbacks",
    "constraints", "initializers", "layers", "losses", "metrics", "models", "optimizers",
    "preprocessing", "regularizers", "saving", "utils",
]  # fmt: skip
