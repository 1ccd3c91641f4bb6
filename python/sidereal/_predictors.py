"""Models of files, as functions of columns: what `sidereal predict` and `evaluate` run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from . import errors, keras, saved_model
from ._data_spec import DataSpec
from ._description import ModelDescription, data_of_json
from ._exporting import ABOUT
from ._values import to_tensor
from .checkpoint import load_checkpoint
from .dtypes import name_of
from .function import ConcreteFunction
from .keras._export import serving_function
from .keras._sidecar import read_weights
from .saved_model import SignatureFunction

Columns = Mapping[str, npt.NDArray[Any]]


@dataclass
class Predictor:
    """What a model predicts. `call` takes arrays by input and gives arrays by output."""

    where: str
    #: Dtype's name and shape by input; extents that are open are None.
    inputs: dict[str, tuple[str, tuple[int | None, ...]]]
    call: Callable[[Columns], dict[str, npt.NDArray[Any]]]
    #: How columns of files become its inputs; None: an input is a column of its name.
    data: DataSpec | None = None
    #: Whether it predicts probabilities; None: that is not known.
    is_binary: bool | None = None
    #: Dtype's name and shape by output; None for a shape of which nothing is known.
    outputs: dict[str, tuple[str, tuple[int | None, ...] | None]] = field(default_factory=dict)
    #: What `call` runs, on inputs in their order, where it is a function of ours.
    function: ConcreteFunction | None = None


def _extents(shape: Any) -> tuple[int | None, ...]:
    return tuple(None if n is None or n < 0 else n for n in shape)


def _of_signature(where: str, signature: SignatureFunction) -> Predictor:
    inputs = {
        name: (name_of(spec.dtype), _extents(spec.shape))
        for name, spec in signature.inputs.items()
        if spec.shape is not None
    }
    outputs = {
        name: (name_of(spec.dtype), None if spec.shape is None else _extents(spec.shape))
        for name, spec in signature.outputs.items()
    }
    if len(inputs) != len(signature.inputs):
        raise errors.InvalidArgumentError(
            f"{where}: its inputs have any number of dimensions; save it with an input_signature"
        )

    dtypes = {name: spec.dtype for name, spec in signature.inputs.items()}

    def call(columns: Columns) -> dict[str, npt.NDArray[Any]]:
        given = {name: _given(columns[name], dtype) for name, dtype in dtypes.items()}
        return {name: value.numpy() for name, value in signature(**given).items()}

    return Predictor(
        where, inputs, call, outputs=outputs, function=signature.concrete_function
    )


def _given(column: npt.NDArray[Any], dtype: Any) -> Any:
    """Texts as lists, which become tensors of strings. What has its dtype need not be looked at."""
    if column.dtype.kind in "OSU":
        return column.tolist()
    return to_tensor(column) if column.dtype == dtype else column


def _of_trace(where: str, concrete: ConcreteFunction) -> Predictor:
    inputs = saved_model._input_names(concrete, None)
    outputs = saved_model._output_names(concrete)
    return _of_signature(where, SignatureFunction("predict", concrete, inputs, outputs))


def _told(predictor: Predictor, about: str) -> Predictor:
    """With what was written beside the model by the export."""
    try:
        said = json.loads(about)
        predictor.data = data_of_json(json.dumps(said["data"]))
        predictor.is_binary = said["is_binary"]
    except (ValueError, KeyError, TypeError) as error:
        raise errors.DataLossError(
            f"{predictor.where} says of its data what this release does not know ({error!r}); "
            "export it again"
        ) from None
    return predictor


def of_description(description: ModelDescription, checkpoint: Any) -> Predictor:
    """A model that is described, with the values of a checkpoint."""
    made = _of_trace(description.where, description.function(checkpoint))
    made.data, made.is_binary = description.data, description.is_binary
    return made


def _onnx_type(value: Any) -> tuple[str, tuple[int | None, ...]]:
    """Dtype's name and shape of an input or output of ONNX Runtime."""
    kinds = {"float": "float32", "double": "float64"}
    kind = value.type.removeprefix("tensor(").removesuffix(")")
    return kinds.get(kind, kind), tuple(n if isinstance(n, int) else None for n in value.shape)


def _of_onnx(path: Path) -> Predictor:
    try:
        # ruff: noqa: PLC0415 - nothing else needs the package.
        import onnxruntime  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise errors.UnavailableError(
            f"{path} is run by the package onnxruntime, which is not installed: pip install "
            f"onnxruntime ({error})"
        ) from None
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - it has no class of its own for them.
        raise errors.InvalidArgumentError(f"{path} is no model that runs: {error}") from None
    inputs = {one.name: _onnx_type(one) for one in session.get_inputs()}
    outputs = {one.name: _onnx_type(one) for one in session.get_outputs()}

    def call(columns: Columns) -> dict[str, npt.NDArray[Any]]:
        given = {
            name: columns[name].astype(object if kind == "string" else kind)
            for name, (kind, _) in inputs.items()
        }
        return dict(zip(outputs, session.run(None, given)))

    made = Predictor(str(path), inputs, call, outputs=dict(outputs))
    about = session.get_modelmeta().custom_metadata_map.get(ABOUT)
    return made if about is None else _told(made, about)


def _of_saved_model(path: Path) -> Predictor:
    loaded = saved_model.load(path)
    key = saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    if key not in loaded.signatures:
        raise errors.InvalidArgumentError(
            f"{path} has no signature '{key}' but {', '.join(loaded.signatures) or 'none'}; save "
            f"it with signatures={{'{key}': ...}}"
        )
    made = _of_signature(str(path), loaded.signatures[key])
    about = getattr(loaded, "about", None)
    return made if about is None else _told(made, about.numpy().item().decode())


def keras_predictor(where: str, model: Any) -> Predictor:
    """What a Keras model computes."""
    return _of_trace(where, serving_function(model).get_concrete_function())


def kind_of(path: str | os.PathLike[str]) -> str:
    """What a file or folder has: "description", "keras", "onnx" or "saved_model"."""
    source = Path(path)
    if source.is_dir() or source.suffix == ".json":
        return "description"
    if not source.exists():
        raise errors.NotFoundError(f"there is no model {source}")
    if source.suffix == ".keras":
        return "keras"
    if source.suffix == ".onnx":
        return "onnx"
    if saved_model.contains_saved_model(source):
        return "saved_model"
    raise errors.InvalidArgumentError(
        f"{source} is no model: it is a saved model or an ONNX file (`sidereal export`), a .keras "
        "file, or model.json with a checkpoint"
    )


def open_model(path: str | os.PathLike[str], checkpoint: str | None = None) -> Predictor:
    """The model of a file.

    path: what export() wrote, a .keras file, or model.json or the folder that it is in.
    checkpoint: what a description or a Keras model takes its values from: a prefix, or a folder, of
        which its newest is meant. Of the folder of a description, that folder if absent.
    """
    kind = kind_of(path)
    if checkpoint is not None and kind in ("onnx", "saved_model"):
        raise _has_its_values(path)
    if kind == "description":
        description = ModelDescription.load(path)
        if checkpoint is None:
            checkpoint = os.path.dirname(os.path.abspath(description.where))
        return of_description(description, checkpoint)
    if kind == "keras":
        return keras_predictor(str(path), keras_model(path, checkpoint))
    return _of_onnx(Path(path)) if kind == "onnx" else _of_saved_model(Path(path))


def open_signatures(
    path: str | os.PathLike[str], checkpoint: str | None = None
) -> dict[str, Predictor]:
    """All that a file computes, by the names of signatures; what is no saved model has one, the
    default."""
    if kind_of(path) != "saved_model":
        return {saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: open_model(path, checkpoint)}
    if checkpoint is not None:
        raise _has_its_values(path)
    loaded = saved_model.load(path)
    return {
        name: _of_signature(str(path), signature) for name, signature in loaded.signatures.items()
    }


def _has_its_values(path: str | os.PathLike[str]) -> errors.Error:
    return errors.InvalidArgumentError(
        f"{path} has its values; a checkpoint is for model.json and .keras files"
    )


def keras_model(path: str | os.PathLike[str], checkpoint: str | None = None) -> Any:
    """A .keras file's model, with the weights of a checkpoint if one is given."""
    model = keras.saving.load_model(path)
    if checkpoint is not None:
        read_weights(model, load_checkpoint(checkpoint).prefix)
    return model


def one_output(predictor: Predictor, outputs: Sequence[str], wanted: str | None) -> str:
    """The output that is meant: the one there is, or the one that is named."""
    if wanted is None and len(outputs) == 1:
        return outputs[0]
    if wanted is not None and wanted in outputs:
        return wanted
    raise errors.InvalidArgumentError(
        f"{predictor.where} has the outputs {', '.join(outputs)}; name one with --output"
    )


__all__ = [
    "Columns", "Predictor", "keras_model", "keras_predictor", "kind_of", "of_description",
    "one_output", "open_model", "open_signatures",
]  # fmt: skip
