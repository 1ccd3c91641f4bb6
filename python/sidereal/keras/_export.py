"""Models as files that are served: their computation without the Python that it was written in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import errors, nest, onnx, saved_model
from ..function import TensorSpec, function
from ..ops.ragged import RaggedTensor
from ..table_file import write_tables
from ..variable import creating
from ._layer import Layer
from ._model_files import copy_here
from ._weights import tree_of


class _Exported:
    """What the file holds: one function, `serve`."""

    def __init__(self, serve: Any) -> None:
        self.serve = serve


def _named(unit: Any, name: str) -> Any:
    """The TensorSpecs of an input, which is a tensor or a RaggedTensor."""
    if isinstance(unit, RaggedTensor):
        return RaggedTensor(
            _named(unit.values, f"{name}_values"), _named(unit.row_splits, f"{name}_row_splits")
        )
    return TensorSpec([None if n < 0 else n for n in unit.shape], unit.dtype, name)


def _signature_of(model: Any) -> Any:
    """The TensorSpecs of what the model is called with, of any number of examples."""
    functional = model._functional
    if functional is not None:
        names = iter(functional.input_names)

        def specs(part: Any) -> Any:
            if isinstance(part, dict):
                found = {key: specs(part[key]) for key in sorted(part)}
                return {key: found[key] for key in part}
            if isinstance(part, (list, tuple)) and not isinstance(part, RaggedTensor):
                return type(part)(specs(each) for each in part)
            return _named(part, next(names))

        return specs(functional.inputs)
    if not model._built_for:
        raise ValueError(
            f"export(): model '{model.name}' was never called, so that it is not known what it is "
            "called with; call it, or give input_signature"
        )

    def of_any_number(leaf: Any) -> Any:
        if not isinstance(leaf, TensorSpec) or not leaf.shape:
            return leaf
        return TensorSpec((None, *(None if n < 0 else n for n in leaf.shape[1:])), leaf.dtype)

    return nest.map_structure(of_any_number, next(iter(model._built_for.values())))


def export_model(
    model: Any, filepath: Any, format: str, input_signature: Any, signatures: Any, options: Any
) -> None:
    """See Model.export()."""
    if format not in ("tf_saved_model", "onnx", "tables"):
        raise ValueError(
            f"export(): format is {format!r}; it must be 'tf_saved_model', 'onnx' or 'tables'"
        )
    if options and format != "onnx":
        raise TypeError(f"export(): format {format!r} takes no {', '.join(options)}")
    if format == "tables":
        write_tables(filepath, tables_of(model))
        return
    made = serving_function(model, input_signature, signatures)
    if format == "onnx":
        if signatures is not None:
            raise ValueError("export(): an ONNX file has no signatures")
        onnx.export(made, filepath, **options)
        return
    saved_model.save(_Exported(made), filepath, made if signatures is None else signatures)


def tables_of(model: Layer) -> dict[str, Any]:
    """What rows are taken from by ids, by name."""
    found = {}
    for _, layer in tree_of(model):
        if layer._has_table and layer.weights:
            found[layer.weights[0].name] = np.asarray(layer.get_weights()[0])
    if not found:
        raise ValueError(f"export(): model '{model.name}' has no Embedding")
    return found


def serving_function(model: Any, input_signature: Any = None, signatures: Any = None) -> Any:
    """What a model computes, as a function with one trace that has its values in this process."""
    if input_signature is None:
        inputs = [_signature_of(model)]
    else:
        is_list = isinstance(input_signature, (list, tuple)) and not isinstance(
            input_signature, RaggedTensor
        )
        inputs = list(input_signature) if is_list else [input_signature]
    if model._strategy is not None:
        model = _here(model, signatures)
    call: Callable[..., Any] = model

    def serve(*args: Any) -> Any:
        return call(*args, training=False)

    made = function(serve, input_signature=inputs)
    made.get_concrete_function()
    return made


def _here(model: Layer, signatures: Any) -> Layer:
    """A model of a strategy as one of this process."""
    if creating.strategy is not None:
        raise ValueError("export() of a model of a strategy is called outside of its scope")
    if signatures is not None:
        raise errors.UnimplementedError(
            f"export(): model '{model.name}' is on parameter servers, where functions under "
            "signatures would read it; save() it, load it outside of the scope of the strategy, "
            "and export that with them"
        )
    return copy_here(model, {type(each).__name__: type(each) for _, each in tree_of(model)})
