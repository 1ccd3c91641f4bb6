"""Layers (keras.layers): what models are made of."""

from .._configs import Registry
from .._layer import Layer
from . import experimental
from .attention import AdditiveAttention, Attention, AttentionPooling, MultiHeadAttention
from .core import (
    ELU,
    Activation,
    Bias,
    Dense,
    Dropout,
    Embedding,
    Identity,
    Input,
    InputLayer,
    Lambda,
    LeakyReLU,
    PReLU,
    ReLU,
    Softmax,
)
from .feature_columns import DenseFeatures, SequenceFeatures
from .hashing import CategoryCrossing, CategoryHashing, HashedCrossing, Hashing
from .interactions import CIN, FM, PLE, Cross, FieldAwareFM, Interacting, MMoE, VectorCross
from .lookups import IntegerLookup, StringLookup
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
from .normalization import BatchNormalization, LayerNormalization
from .numeric_features import CategoryEncoding, Discretization, Normalization, Rescaling
from .recurrent import AUGRU, GRU, LSTM
from .text import SplitText, TextVectorization

_registry = Registry(
    "keras.layers",
    [each for each in vars().values() if isinstance(each, type) and issubclass(each, Layer)],
)
serialize, deserialize = _registry.serialize, _registry.deserialize

__all__ = [
    "AUGRU", "CIN", "ELU", "FM", "GRU", "LSTM", "PLE", "Activation", "Add", "AdditiveAttention",
    "Attention", "AttentionPooling", "Average", "BatchNormalization", "Bias", "CategoryCrossing",
    "CategoryEncoding", "CategoryHashing", "Concatenate", "Cross", "Dense", "DenseFeatures",
    "Discretization", "Dot", "Dropout", "Embedding", "FieldAwareFM", "Flatten",
    "GlobalAveragePooling1D", "GlobalMaxPooling1D", "HashedCrossing", "Hashing", "Identity",
    "Input", "InputLayer", "IntegerLookup", "Interacting", "Lambda", "Layer", "LayerNormalization",
    "LeakyReLU", "MMoE", "Maximum", "Minimum", "MultiHeadAttention", "Multiply", "Normalization",
    "PReLU", "Permute", "ReLU", "RepeatVector", "Rescaling", "Reshape", "SequenceFeatures",
    "Softmax", "SplitText", "StringLookup", "Subtract", "TextVectorization", "VectorCross", "add",
    "average", "concatenate", "deserialize", "dot", "experimental", "maximum", "minimum",
    "multiply", "serialize", "subtract",
]  # fmt: skip
