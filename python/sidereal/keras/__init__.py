"""Keras' activations, initializers, regularizers, constraints, losses and metrics, with Keras'
names, arguments and numbers, on tensors and variables of sidereal.

    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    auc = keras.metrics.AUC(from_logits=True)
    value = loss(labels, logits)
    auc.update_state(labels, logits)
"""

from . import activations, constraints, initializers, layers, losses, metrics, regularizers
from .initializers import Initializer
from .losses import Loss
from .metrics import Metric
from .regularizers import Regularizer

__all__ = [
    "Initializer", "Loss", "Metric", "Regularizer", "activations", "constraints", "initializers",
    "losses", "metrics", "regularizers",
]  # fmt: skip
