"""Keras' activations, initializers, regularizers, constraints and losses, with Keras' names,
arguments and numbers, on tensors and variables of sidereal.

    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    value = loss(labels, logits)
"""

from . import activations, constraints, initializers, losses, regularizers
from .initializers import Initializer
from .losses import Loss
from .regularizers import Regularizer

__all__ = [
    "Initializer", "Loss", "Regularizer", "activations", "constraints", "initializers", "losses",
    "regularizers",
]  # fmt: skip
