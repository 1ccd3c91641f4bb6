"""Layers (keras.layers): what models are made of."""

from .._layer import Layer
from .core import (
    Activation,
    Dense,
    Dropout,
    Embedding,
    Identity,
    Input,
    InputLayer,
    Lambda,
    LeakyReLU,
    ReLU,
    Softmax,
)
from .merging import (
    Add,
    Average,
    Concatenate,
    Dot,
    Flatten,
    GlobalAveragePooling1D,
    GlobalMaxPooling1D,
    Maximum,
    Minimum,
    Multiply,
    Permute,
    RepeatVector,
    Reshape,
    Subtract,
    add,
    average,
    concatenate,
    dot,
    maximum,
    minimum,
    multiply,
    subtract,
)

__all__ = [
    "Activation", "Add", "Average", "Concatenate", "Dense", "Dot", "Dropout", "Embedding",
    "Flatten", "GlobalAveragePooling1D", "GlobalMaxPooling1D", "Identity", "Input", "InputLayer",
    "Lambda", "Layer", "LeakyReLU", "Maximum", "Minimum", "Multiply", "Permute", "ReLU",
    "RepeatVector", "Reshape", "Softmax", "Subtract", "add", "average", "concatenate", "dot",
    "maximum", "minimum", "multiply", "subtract",
]  # fmt: skip
