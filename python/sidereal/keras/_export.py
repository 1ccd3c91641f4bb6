"""Models as files that are served: their computation without the Python that it was written in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import errors, nest, saved_model
from ..function import TensorSpec, function
from ..ops.ragged import RaggedTensor
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
    model: Any, filepath: Any, format: str, input_signature: Any, signatures: Any
) -> None:
    """See Model.export()."""
    if format != "tf_saved_model":
        raise ValueError(
            f"export(): format is {format!r}; it must be 'tf_saved_model'. For ONNX see "
            "sidereal.onnx"
        )
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
    if signatures is None:
        signatures = made
    saved_model.save(_Exported(made), filepath, signatures)


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
