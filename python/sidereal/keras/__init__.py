"""Keras' activations, initializers, regularizers and constraints, with Keras' names, arguments and
numbers, on tensors and variables of sidereal."""

from . import activations, constraints, initializers, regularizers
from .initializers import Initializer
from .regularizers import Regularizer

__all__ = [
    "Initializer", "Regularizer", "activations", "constraints", "initializers", "regularizers",
]  # fmt: skip
