"""sidereal.keras.layers beside Keras: outputs, and gradients by inputs and weights, at once, in a
function and in a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from keras_peer import QUIET, array_of, close, keras64, peer

import sidereal as sr
from sidereal import keras
from sidereal.keras import layers

pytestmark = QUIET

BATCH = 5


class Case(NamedTuple):
    """A layer with its arguments, called on inputs of these shapes (of an example) and kinds."""

    name: str
    arguments: dict[str, Any] = {}
    shapes: tuple[Any, ...] = ((4,),)
    call: dict[str, Any] = {}
    #: "float", or below what ids are.
    kinds: tuple[Any, ...] = ()


VECTORS = ((4,), (4,))
SEQUENCE = ((6, 3),)
MASK = np.array([[1, 1, 0, 1, 0, 0], [1] * 6, [0, 1, 1, 1, 1, 1], [1, 0] * 3, [1, 1, 1, 0, 0, 0]])
MASK = MASK.astype(bool)
QUERY_MASK = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]]).astype(bool)
ATTENDED = ((3, 4), (6, 4))
CASES = [
    Case("Dense", {"units": 3}),
    Case("Dense", {"units": 3, "activation": "relu", "use_bias": False}),
    Case("Dense", {"units": 2, "activation": "tanh"}, ((3, 4),)),
    Case("Dense", {"units": 2}, ((2, 3, 4),)),
    Case("Activation", {"activation": "softplus"}),
    Case("ReLU", {"max_value": 1.0, "negative_slope": 0.1, "threshold": 0.2}),
    Case("ELU", {"alpha": 0.7}),
    Case("LeakyReLU", {}),
    Case("PReLU", {"alpha_initializer": "ones"}),
    Case("Softmax", {}),
    Case("Softmax", {"axis": 1}, ((3, 4),)),
    Case("Identity"),
    Case("Dropout", {"rate": 0.4}),
    Case("Dropout", {"rate": 1.0}, call={"training": True}),
    Case("Embedding", {"input_dim": 9, "output_dim": 3}, ((4,),), kinds=(9,)),
    Case("Embedding", {"input_dim": 9, "output_dim": 3}, ((2, 3),), kinds=(9,)),
    Case("Embedding", {"input_dim": 9, "output_dim": 3}, ((),), kinds=(9,)),
    *(Case(name, {}, VECTORS) for name in ("Add", "Subtract", "Multiply", "Average", "Maximum",
                                           "Minimum", "Concatenate")),
    Case("Add", {}, ((4,), (4,), (1,))),
    Case("Multiply", {}, ((3, 4), (4,))),
    Case("Concatenate", {"axis": 1}, ((3, 4), (2, 4))),
    Case("Dot", {"axes": 1}, VECTORS),
    Case("Dot", {"axes": -1, "normalize": True}, VECTORS),
    Case("Dot", {"axes": (1, 2)}, ((4, 3), (2, 4))),
    Case("Dot", {"axes": 2}, ((3, 4), (2, 4))),
    Case("Flatten", {}, ((3, 4),)),
    Case("Flatten", {}, ((),)),
    Case("Flatten", {}, ((2, 3, 4),)),
    Case("Reshape", {"target_shape": (2, 6)}, ((3, 4),)),
    Case("Reshape", {"target_shape": (-1, 2)}, ((3, 4),)),
    Case("Permute", {"dims": (2, 1)}, ((3, 4),)),
    Case("RepeatVector", {"n": 3}),
    Case("GlobalAveragePooling1D", {}, SEQUENCE),
    Case("GlobalAveragePooling1D", {"keepdims": True}, SEQUENCE, {"mask": MASK}),
    Case("GlobalMaxPooling1D", {}, SEQUENCE),
    Case("BatchNormalization", {}, call={"training": False}),
    Case("BatchNormalization", {"momentum": 0.8}, call={"training": True}),
    Case("BatchNormalization", {"scale": False, "center": False}, call={"training": True}),
    Case("BatchNormalization", {"epsilon": 0.1}, SEQUENCE, {"training": True}),
    Case("BatchNormalization", {"axis": 1}, SEQUENCE, {"training": True}),
    Case("BatchNormalization", {"axis": 1}, SEQUENCE, {"training": False}),
    Case("BatchNormalization", {}, SEQUENCE, {"training": True, "mask": MASK}),
    Case("LayerNormalization", {}),
    Case("LayerNormalization", {"epsilon": 0.1, "scale": False}, SEQUENCE),
    Case("LayerNormalization", {"axis": [1, 2]}, SEQUENCE),
    Case("LayerNormalization", {"axis": [1, 2], "center": False}, SEQUENCE),
    *(Case(name, {"units": 4, **options}, SEQUENCE)
      for name in ("GRU", "LSTM")
      for options in ({}, {"return_sequences": True}, {"go_backwards": True},
                      {"return_sequences": True, "go_backwards": True}, {"use_bias": False},
                      {"activation": "relu", "recurrent_activation": "tanh"},
                      {"return_state": True, "return_sequences": True})),
    Case("GRU", {"units": 4}, SEQUENCE, {"mask": MASK}),
    Case("LSTM", {"units": 4, "return_sequences": True}, SEQUENCE, {"mask": MASK[:, ::-1].copy()}),
    Case("Attention", {}, ATTENDED),
    Case("Attention", {"use_scale": True}, (*ATTENDED, (6, 4))),
    Case("Attention", {"score_mode": "concat", "use_scale": True}, ATTENDED),
    Case("Attention", {}, ATTENDED, {"mask": [QUERY_MASK, MASK]}),
    Case("Attention", {}, ((6, 4), (6, 4)), {"use_causal_mask": True}),
    Case("AdditiveAttention", {}, ATTENDED),
    Case("AdditiveAttention", {"use_scale": False}, ATTENDED, {"mask": [QUERY_MASK, MASK]}),
    Case("MultiHeadAttention", {"num_heads": 2, "key_dim": 3}, ATTENDED),
    Case("MultiHeadAttention", {"num_heads": 2, "key_dim": 3, "value_dim": 5, "use_bias": False},
         (*ATTENDED, (6, 2))),
    Case("MultiHeadAttention", {"num_heads": 3, "key_dim": 2, "output_shape": 7}, ATTENDED,
         {"query_mask": QUERY_MASK, "value_mask": MASK, "return_attention_scores": True}),
    Case("MultiHeadAttention", {"num_heads": 1, "key_dim": 2}, ((6, 4), (6, 4)),
         {"use_causal_mask": True}),
]  # fmt: skip
#: Layers that Keras does not have, which test_keras_click_layers.py looks at, and what is no layer
#: to be compared.
OTHERS = {
    "AUGRU", "AttentionPooling", "Bias", "CIN", "Cross", "DenseFeatures", "FM", "FieldAwareFM",
    "Input", "InputLayer", "Interacting", "Lambda", "Layer", "MMoE", "PLE", "SequenceFeatures",
    "VectorCross",
}  # fmt: skip
#: Layers of preprocessing, which test_preprocessing*.py compare.
PREPROCESSING = {
    "CategoryCrossing", "CategoryEncoding", "CategoryHashing", "Discretization", "HashedCrossing",
    "Hashing", "IntegerLookup", "Normalization", "Rescaling", "SplitText", "StringLookup",
    "TextVectorization",
}  # fmt: skip
#: Layers that Keras computes in float32.
NARROW = {"AdditiveAttention", "Attention", "LayerNormalization", "MultiHeadAttention"}
#: Layers whose inputs are several arguments.
SPREAD = {"MultiHeadAttention", "Cross"}


def described(case: Case) -> str:
    parts = [case.name, *(f"{k}={v}" for k, v in case.arguments.items())]
    parts.append("x".join(str(shape).replace(" ", "") for shape in case.shapes))
    return "-".join([*parts, *case.call])


def tolerance(case: Case) -> float:
    return 3e-5 if case.name in NARROW else 1e-6


def inputs_of(case: Case) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    kinds = case.kinds or ("float",) * len(case.shapes)
    return [
        rng.normal(size=(BATCH, *shape))
        if kind == "float"
        else rng.integers(0, kind, size=(BATCH, *shape))
        for kind, shape in zip(kinds, case.shapes)
    ]


def called(layer: Any, inputs: list[Any], call: dict[str, Any]) -> Any:
    if type(layer).__name__ in SPREAD:
        return layer(*inputs, **call)
    return layer(inputs[0] if len(inputs) == 1 else inputs, **call)


def leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _weighted_sum(values: list[Any], reduce: Callable[[Any], Any], make: Any) -> Any:
    rng = np.random.default_rng(4)
    return sum(reduce(value * make(rng.normal(size=tuple(value.shape)))) for value in values)


def theirs(case: Case, inputs: list[np.ndarray]) -> tuple[Any, list[Any], list[Any], list[Any]]:
    """Outputs of Keras, its weights before and after, and gradients by inputs and weights."""
    import torch

    rng = np.random.default_rng(5)
    layer = getattr(peer().layers, case.name)(**case.arguments, dtype="float64")
    given = [torch.tensor(x, requires_grad=x.dtype == np.float64) for x in inputs]
    call = {
        key: peer().ops.convert_to_tensor(value) if isinstance(value, np.ndarray)
        else [peer().ops.convert_to_tensor(each) for each in value] if isinstance(value, list)
        else value
        for key, value in case.call.items()
    }  # fmt: skip
    called(layer, given, call)
    first = [rng.uniform(0.3, 1.0, size=tuple(w.shape)) for w in layer.weights]
    layer.set_weights(first)
    outputs = leaves(called(layer, given, call))
    for variable in layer.trainable_weights:
        variable.value.grad = None
    total = _weighted_sum(outputs, torch.sum, torch.tensor)
    gradients: list[Any] = []
    if total.requires_grad:
        sources = [x for x in given if x.requires_grad]
        sources += [variable.value for variable in layer.trainable_weights]
        gradients = list(torch.autograd.grad(total, sources, allow_unused=True))
    after = [array_of(w) for w in layer.weights]
    return [array_of(x.detach()) for x in outputs], first, after, gradients


def own(case: Case) -> Any:
    return getattr(layers, case.name)(**case.arguments, dtype="float64")


def test_every_layer_has_a_case() -> None:
    classes = {name for name in layers.__all__ if inspect.isclass(getattr(layers, name))}
    assert {case.name for case in CASES} == classes - OTHERS - PREPROCESSING


@pytest.mark.parametrize("case", CASES, ids=[described(case) for case in CASES])
def test_layers_equal_keras(case: Case) -> None:
    inputs = inputs_of(case)
    with keras64():
        expected, first, after, gradients = theirs(case, inputs)
        layer = own(case)
        tensors = [sr.constant(x) for x in inputs]
        called(layer, tensors, case.call)
        layer.set_weights(first)
        with sr.GradientTape() as tape:
            watched = [x for x in tensors if x.dtype == sr.float64]
            tape.watch(watched)
            outputs = leaves(called(layer, tensors, case.call))
            total = _weighted_sum(outputs, sr.reduce_sum, sr.constant)
        for mine, other in zip(outputs, expected, strict=True):
            close(mine, other, tolerance(case))
        for mine, other in zip(layer.get_weights(), after, strict=True):
            close(mine, other)
        found = tape.gradient(total, [*watched, *layer.trainable_weights])
        for mine, other in zip(found, gradients):
            if other is None or mine is None:
                assert mine is None or not np.any(np.asarray(mine))
                assert other is None or not np.any(array_of(other))
                continue
            dense = sr.convert_to_tensor(getattr(mine, "to_dense", lambda m=mine: m)())
            close(dense, other.detach(), tolerance(case))


@pytest.mark.parametrize("case", CASES, ids=[described(case) for case in CASES])
def test_layers_are_the_same_in_a_model(case: Case) -> None:
    inputs = inputs_of(case)
    layer = own(case)
    called(layer, inputs, case.call)
    weights = layer.get_weights()
    at_once = leaves(called(layer, inputs, case.call))
    layer.set_weights(weights)
    kinds = case.kinds or ("float",) * len(inputs)
    symbols = [
        keras.Input(shape, dtype="float64" if kind == "float" else "int64")
        for kind, shape in zip(kinds, case.shapes)
    ]
    made = called(layer, symbols, case.call)
    if "mask" not in case.call and "query_mask" not in case.call:
        for symbol, value in zip(leaves(made), at_once):
            assert len(symbol.shape) == len(value.shape)
            assert all(n in (-1, m) for n, m in zip(symbol.shape, value.shape))
            assert -1 not in symbol.shape[1:]
    model = keras.Model(symbols, made)
    for run in (model, sr.function(lambda xs: model(xs))):
        layer.set_weights(weights)
        for mine, other in zip(leaves(run(inputs)), at_once, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-12)
    assert [id(each) for each in model.weights] == [id(each) for each in layer.weights]


@pytest.mark.parametrize("case", CASES, ids=[described(case) for case in CASES])
def test_layers_are_made_again_from_their_configs(case: Case) -> None:
    inputs = inputs_of(case)
    call = {key: value for key, value in case.call.items() if key != "training"}
    layer = own(case)
    wanted = leaves(called(layer, inputs, call))
    config = layer.get_config()
    again = type(layer).from_config(config)
    assert (again.name, again.dtype, again.get_config()) == (layer.name, "float64", config)
    called(again, inputs, call)
    again.set_weights(layer.get_weights())
    for mine, other in zip(leaves(called(again, inputs, call)), wanted, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12)
