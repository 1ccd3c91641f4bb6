"""What a model predicts, without what it has learned: the file `model.json` beside checkpoints,
by which a program without a cluster makes a function of one. See docs/formats/model_description.md.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import _native, errors, optimizers
from ._data_spec import DataSpec, Negatives
from ._dispatch import ENGINE
from ._files import written_whole
from ._serving import Inference, Lookup, inference_of
from .checkpoint import CheckpointReader, load_checkpoint
from .dtypes import as_dtype
from .function import ConcreteFunction

#: What the file is called in a folder of checkpoints.
FILE_NAME = "model.json"
_FORMAT = "sidereal.model"
_VERSION = 1
#: Of what a click model is, beside its kind: the options of models.build().
_CLICK_OPTIONS = ("embedding_dim", "hidden", "cross_layers")
#: Those that older descriptions do not have.
_NEW_OPTIONS = ("loss", "classes", "experts")


class ModelDescription:
    """A model as others know it: its inputs, its variables, and what it predicts by them.

        description = sr.models.ModelDescription.load("checkpoints")
        predict = description.function("checkpoints/model.ckpt-500")

    data: how columns of files become its inputs; None when that is not known.
    """

    def __init__(
        self, by_ids: Inference, by_rows: Inference, data: DataSpec | None, where: str
    ) -> None:
        self._by_ids, self._by_rows = by_ids, by_rows
        self.data = data
        self.where = where

    @classmethod
    def of(cls, compiled: _native.CompiledModel, data: DataSpec | None = None) -> ModelDescription:
        """The description of a compiled model, which is trained on data like `data`."""
        return cls(
            inference_of(compiled), inference_of(compiled, takes_rows=True), _resolved(data),
            "the model",
        )  # fmt: skip

    @property
    def is_binary(self) -> bool:
        """Whether it predicts probabilities."""
        return self._by_ids.result == "probability"

    @property
    def inputs(self) -> dict[str, tuple[Any, tuple[int, ...]]]:
        """Dtype and shape of each input, the batch first, by name."""
        return {name: (as_dtype(v.dtype), v.shape or ()) for name, v in self._by_ids.features}

    @property
    def variables(self) -> dict[str, tuple[Any, tuple[int, ...]]]:
        """Dtype and shape of each variable that predictions depend on, by name."""
        return {name: (as_dtype(v.dtype), v.shape or ()) for name, v in self._by_ids.variables}

    @property
    def lookups(self) -> list[Lookup]:
        """What the inputs are that a function of rows has in the place of ids."""
        return list(self._by_rows.lookups)

    @property
    def tables(self) -> list[str]:
        """The names of the variables that rows are taken from."""
        return sorted({lookup.table for lookup in self.lookups})

    def function(
        self, checkpoint: str | os.PathLike[str] | Callable[[str], Any], inputs: str = "ids"
    ) -> ConcreteFunction:
        """What the model predicts by a checkpoint, as a function of its inputs.

        checkpoint: a prefix, a folder, of which its newest is meant, or a function that gives the
            value of a variable by name.
        inputs: "vectors": the function takes rows of tables in the place of ids (see `lookups`),
            and has no tables itself.

        Errors: NotFoundError, InvalidArgumentError for a checkpoint of another model.
        """
        if inputs not in ("ids", "vectors"):
            raise errors.InvalidArgumentError(f"inputs is '{inputs}'; it is ids or vectors")
        read = checkpoint if callable(checkpoint) else self.reader(checkpoint)
        return (self._by_ids if inputs == "ids" else self._by_rows).function(read)

    def reader(self, checkpoint: str | os.PathLike[str]) -> Callable[[str], Any]:
        """What gives the values of variables by name, of a checkpoint that has all of them."""
        reader = load_checkpoint(checkpoint)
        self._check(reader)
        return reader.get_tensor

    def _check(self, reader: CheckpointReader) -> None:
        shapes = reader.get_variable_to_shape_map()
        types = reader.get_variable_to_dtype_map()
        remedy = f"give the {FILE_NAME} of the training that wrote it"
        for name, (dtype, shape) in self.variables.items():
            if name not in shapes:
                raise errors.NotFoundError(
                    f"{reader.prefix} has no tensor '{name}', which {self.where} needs; {remedy}"
                )
            if tuple(shapes[name]) != tuple(shape) or types[name] is not dtype:
                raise errors.InvalidArgumentError(
                    f"{reader.prefix}: '{name}' is {types[name]!s} {shapes[name]}, and "
                    f"{dtype!s} {list(shape)} in {self.where}; {remedy}"
                )

    # ---- files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes the description to a file, or as model.json to a folder; the path."""
        target = Path(path)
        if target.is_dir():
            target = target / FILE_NAME
        with written_whole(target) as file:
            file.write(self.to_json().encode())
        return str(target)

    def to_json(self) -> str:
        """As it stands in a file."""
        model = _native.SavedModel()
        model.producer = f"sidereal {_native.__version__}"
        graphs = {}
        for key, inference in (("ids", self._by_ids), ("vectors", self._by_rows)):
            values = [value for _, value in (*inference.features, *inference.variables)]
            model.add_function(inference.native, key, "", values, [], [inference.output], [])
            graphs[key] = {
                "features": [name for name, _ in inference.features],
                "variables": [name for name, _ in inference.variables],
            }
        said = {
            "format": _FORMAT,
            "version": _VERSION,
            "producer": model.producer,
            "result": self._by_ids.result,
            "graphs": graphs,
            "lookups": [lookup._asdict() for lookup in self.lookups],
            "data": None if self.data is None else dataclasses.asdict(self.data),
            "functions": base64.b64encode(model.encode(ENGINE)).decode(),
        }
        return json.dumps(said, indent=1) + "\n"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ModelDescription:
        """Reads a file, or the model.json of a folder.

        Errors: NotFoundError; DataLossError or InvalidArgumentError for what is no description.
        """
        source = Path(path)
        if source.is_dir():
            source = source / FILE_NAME
        try:
            text = source.read_text()
        except FileNotFoundError:
            raise errors.NotFoundError(
                f"there is no description of a model {source}: trainings write it beside their "
                "checkpoints, and Model.describe() at any time"
            ) from None
        except UnicodeDecodeError:
            raise _not_described(source, "it is no text") from None
        return cls.from_json(text, str(source))

    @classmethod
    def from_json(cls, text: str, where: str = "the description") -> ModelDescription:
        """What to_json() gave."""
        try:
            said = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _not_described(where, f"it is no JSON ({error})") from None
        if not isinstance(said, dict) or said.get("format") != _FORMAT:
            raise _not_described(where, f"its format is not '{_FORMAT}'")
        if said.get("version") != _VERSION:
            raise errors.InvalidArgumentError(
                f"{where} is of version {said.get('version')!r}; this release reads {_VERSION}"
            )
        try:
            data = None if said.get("data") is None else DataSpec.of_dict(said["data"])
            if "click_model" in said:
                made = cls.of(_click_model(said["click_model"]), data)
            else:
                made = cls(*_graphs_of(said), data, where)
        except errors.Error as error:
            error.message = f"{where}: {error.message}"
            raise
        except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise errors.DataLossError(
                f"{where} describes a model in a way this release does not know ({error!r}); "
                "write it again, by the release that is to read it"
            ) from None
        made.where = where
        return made


def _not_described(where: Any, why: str) -> errors.Error:
    return errors.InvalidArgumentError(
        f"{where} is no description of a model: {why}; give the {FILE_NAME} of a folder of "
        "checkpoints, or what Model.describe() wrote"
    )


def _resolved(data: DataSpec | None) -> DataSpec | None:
    """What is said of columns, without files; columns that were chosen by the first file by
    name."""
    if data is None or data.format == "arrays":
        return None
    if data.format == "csv" and not data.categorical:
        schema = data.inspect()
        data = dataclasses.replace(data, categorical=list(schema.categorical))
    return dataclasses.replace(
        data.with_statistics(), files=[], arrays=[], shuffle_rows=0, negatives=Negatives()
    )


def save_vocabularies(directory: str | os.PathLike[str], data: DataSpec | None) -> None:
    """Writes the vocabularies of columns to the folder of a model, a token a line."""
    for one in () if data is None else data.vocabularies:
        name = f"vocabulary_{one.column}.txt".replace("/", "_")
        with written_whole(Path(directory, name)) as file:
            file.write("".join(f"{token}\n" for token in one.tokens).encode())


def data_beside(directory: str | os.PathLike[str]) -> DataSpec | None:
    """The data of the training whose checkpoints a folder has, if that is said there."""
    try:
        said = json.loads(Path(directory, FILE_NAME).read_text())["data"]
        return None if said is None else DataSpec.of_dict(said)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # There was none, or whoever reads the description says what is wrong with it.


def data_of_json(text: str) -> DataSpec | None:
    """A DataSpec that a model that was exported holds."""
    said = json.loads(text)
    return None if said is None else DataSpec.of_dict(said)


def _click_model(said: Mapping[str, Any]) -> _native.CompiledModel:
    """A model of models.build(), of which is said how it was called."""
    unknown = set(said) - {"kind", "schema", *_CLICK_OPTIONS, *_NEW_OPTIONS}
    if unknown:
        raise ValueError(f"click_model has {sorted(unknown)}")
    return _native.build_model(
        kind=said["kind"],
        schema=_native.Schema(**said["schema"]),
        optimizer=optimizers.get("sgd")._of_model(),
        embedding_dim=said["embedding_dim"],
        embedding_stddev=0.01,
        hidden=list(said["hidden"]),
        dropout=0.0,
        cross_layers=said["cross_layers"],
        seed=0,
        l2_embedding=0.0,
        l2_linear=0.0,
        l2_dense=0.0,
        **{key: said[key] for key in _NEW_OPTIONS if key in said},
    )


def _graphs_of(said: Mapping[str, Any]) -> tuple[Inference, Inference]:
    model = _native.SavedModel.decode(base64.b64decode(said["functions"], validate=True), ENGINE)
    found = []
    for name, _, native, inputs, _, outputs, _ in model.functions(ENGINE):
        features, variables = said["graphs"][name]["features"], said["graphs"][name]["variables"]
        if len(inputs) != len(features) + len(variables) or len(outputs) != 1:
            raise ValueError(f"graph '{name}' has other inputs than it says")
        lookups = [Lookup(**one) for one in said["lookups"]] if name == "vectors" else []
        found.append(
            Inference(
                native, list(zip(features, inputs)),
                list(zip(variables, inputs[len(features) :])), said["result"], outputs[0], lookups,
            )
        )  # fmt: skip
    by_ids, by_rows = found
    return by_ids, by_rows


__all__ = ["FILE_NAME", "ModelDescription", "data_beside", "data_of_json", "save_vocabularies"]
