"""One definition of features for the command line, Keras, feature columns and Model.fit().

    features = sr.features.load("features.toml", "train.csv")
    made = features.keras_model()               # raw columns in, "ids" and "dense" out
    columns = features.feature_columns()        # tf.feature_column's kind, by name
    sr.models.build("deepfm", features.csv("train.csv"))

The file is that of `sidereal train --features`; ids and numbers are those that it trains on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from . import _data_spec, errors, keras, ops
from ._data_spec import DataSpec, NumericTransform
from ._datasets import Dataset
from ._description import ModelDescription
from ._raw_columns import CROSS_SEPARATOR, raw_specs, transforms_of
from ._rows import Table
from .dtypes import float32, int64
from .feature_column import FeatureColumn
from .feature_column._files import FileCategoricalColumn, FileNumericColumn
from .tensors import constant

Path = str | os.PathLike[str]

__all__ = ["Features", "from_model", "load"]


def load(features: Path, *files: Path, **options: Any) -> Features:
    """The features of a file of features (docs/guide/features.md).

    files: what is to be known of columns, scales, boundaries and vocabularies, is that of a sample
        of these csv files, as `sidereal train --data` has it; without, the file of features must
        say it all.
    options: those of sidereal.data.csv(), such as `delimiter`.
    """
    return Features(_data_spec.csv(*files, features=features, **options)) if files else Features(
        _data_spec.without_files(features, **options)
    )  # fmt: skip


def from_model(path: Path) -> Features:
    """Those of a model that was trained: of the model.json of a folder of checkpoints."""
    data = ModelDescription.load(path).data
    if data is None or data.format != "csv":
        raise errors.InvalidArgumentError(
            f"{path} is of a model that was trained on no csv files: it says nothing of columns"
        )
    return Features(data)


class Features:
    """What becomes of the columns of csv files. `data`: the DataSpec, with all that is to be known
    of columns.

    numbers: those that "dense" has, in order; fields: those that "ids" has. sequences: inputs of
    their own. Each field's ids begin behind those of the field before.
    """

    def __init__(self, data: DataSpec) -> None:
        if data.format != "csv":
            raise errors.InvalidArgumentError(
                f"features are of csv files, and the data is {data.format}"
            )
        if data.needs_statistics and not data.files:
            raise errors.InvalidArgumentError(
                "the file of features leaves scales, boundaries or vocabularies to the data; give "
                'csv files too: load("features.toml", "train.csv")'
            )
        data = data.with_statistics()
        if not data.categorical and data.files:
            data = replace(data, categorical=list(data.inspect().categorical))
        if data.id_space > 0:
            raise errors.InvalidArgumentError(
                "with an id space columns are ids themselves, of which nothing is made"
            )
        self.data = replace(data, files=[])
        ids = {name: (first, size) for name, first, size in data.fields()}
        self.numbers = list(data.numeric)
        own = {one.column for one in data.sequences if not one.like}
        self.fields = [name for name in ids if name not in own]
        self.sequences = [one.column for one in data.sequences]
        self._ids = {**ids, **{one.column: ids[one.like] for one in data.sequences if one.like}}
        self._numbers_of = {name: i for i, name in enumerate(ids)}

    def __repr__(self) -> str:
        return (
            f"Features({len(self.numbers)} numbers, {len(self.fields)} fields of {self.rows} ids, "
            f"{len(self.sequences)} sequences)"
        )

    @property
    def rows(self) -> int:
        """How many ids there are: the rows of a table of all of them."""
        return sum(size for _, _, size in self.data.fields())

    @property
    def inputs(self) -> dict[str, Any]:
        """The raw columns and their dtypes: float32 numbers, NaN for an empty cell, and strings."""
        return {str(spec.name): spec.dtype for spec in raw_specs(self.data)}

    # ---- Data ------------------------------------------------------------------------------------

    def csv(self, *files: Path, **options: Any) -> DataSpec:
        """Files with these columns, for sidereal.Model.fit() and models.build(). options:
        bad_rows, shuffle_rows, binary_label."""
        return replace(_data_spec.csv(*files, **options, **self._style()), **self._of_columns())

    def dataset(self, *files: Path, batch_size: int = 1024, **options: Any) -> Dataset:
        """Batches (inputs, labels[, weights]) of files, for keras.Model.fit(): inputs by name,
        "ids", "dense" and sequences; of several labels a tuple."""
        data = self.csv(*files, **options)
        others = ["label", *data.targets]

        def parts(batch: Any) -> Any:
            labels = tuple(batch[name] for name in others)
            inputs = {
                name: value
                for name, value in batch.items()
                if name not in (*others, "sample_weight", "group")
            }
            made = (inputs, labels if len(labels) > 1 else labels[0])
            return (*made, batch["sample_weight"]) if "sample_weight" in batch else made

        return Dataset.from_spec(data, batch_size).map(parts)

    def read(self, *files: Path) -> dict[str, np.ndarray]:
        """The raw columns of files, whole, as what keras_model() and signatures take."""
        cells: dict[str, list[str]] = {name: [] for name in self.inputs}
        spec = _data_spec.csv(*files, **self._style())
        for path in spec.files:
            table = Table(path, spec.delimiter)
            places = [table.place(name, "which the features are of") for name in cells]
            for row in table.rows():
                for at, found in zip(places, cells.values()):
                    found.append(row[at])
        return {
            name: np.array(found, object)
            if dtype.name == "string"
            else np.array([float(x) if x.strip() else np.nan for x in found], np.float32)
            for (name, dtype), found in zip(self.inputs.items(), cells.values())
        }

    def _style(self) -> dict[str, Any]:
        return {"delimiter": self.data.delimiter}

    def _of_columns(self) -> dict[str, Any]:
        keys = (
            "label", "numeric", "categorical", "label_rule", "weight", "targets", "group",
            "class_weights", "numeric_transform", "column_transforms", "transforms", "defaults",
            "multi_hot", "bucketized", "crosses", "vocabularies", "sequences", "hash",
            "hash_buckets",
        )  # fmt: skip
        return {key: getattr(self.data, key) for key in keys}

    # ---- Feature columns -------------------------------------------------------------------------

    def feature_columns(self) -> dict[str, FeatureColumn]:
        """Columns for keras.layers.DenseFeatures, estimators and v1: dense ones of numbers, and
        categorical ones of fields and sequences, with ids from 0 on each, for an embedding_column
        or indicator_column. They take the raw columns by name."""
        spec = self.data.to_json()
        numbers = {name: FileNumericColumn(name, spec) for name in self.numbers}
        fields = {
            f"{name}_ids" if name in numbers else name: FileCategoricalColumn(name, spec)
            for name in (*self.fields, *self.sequences)
        }
        return {**numbers, **fields}

    # ---- Keras -----------------------------------------------------------------------------------

    def keras_inputs(self) -> dict[str, Any]:
        """A keras.Input of each raw column, [batch]."""
        return {
            name: keras.Input((), dtype=dtype.name, name=name)
            for name, dtype in self.inputs.items()
        }

    def keras_layers(self) -> dict[str, Any]:
        """The layer of each field or sequence that makes ids of it from 0 on: a StringLookup of a
        vocabulary, Discretization of buckets; of what is hashed Hashing and HashedCrossing (hash
        "farmhash") or CategoryHashing; and of each number, "NAME_number", what scales it:
        Normalization, or Discretization of a quantile."""
        layers = {name: self._layer_of(name) for name in (*self.fields, *self.sequences)}
        for name, by in transforms_of(self.data):
            if by.kind == "quantile":
                layers[f"{name}_number"] = keras.layers.Discretization(by.boundaries)
            elif by.kind not in ("none", "log1p"):
                layers[f"{name}_number"] = _scaling(by)
        return layers

    def _layer_of(self, name: str) -> Any:
        data = self.data
        like = next((one.like for one in data.sequences if one.column == name and one.like), name)
        if like != name:
            return self._layer_of(like)
        for one in data.bucketized:
            if one.column == name:
                return keras.layers.Discretization(one.boundaries)
        for known in data.vocabularies:
            if known.column == name:
                return keras.layers.StringLookup(
                    vocabulary=known.tokens, num_oov_indices=known.num_oov_indices
                )
        if data.hash != "farmhash":
            return keras.layers.CategoryHashing(data.hash_buckets, self._numbers_of[name])
        is_cross = any("*".join(cross) == name for cross in data.crosses)
        kind = keras.layers.HashedCrossing if is_cross else keras.layers.Hashing
        return kind(data.hash_buckets)

    def keras_model(self) -> Any:
        """A keras.Model without weights: of raw columns by name it makes "dense", "ids" and
        sequences, what `sidereal train` and csv() have of the same rows."""
        given = self.keras_inputs()
        layers = self.keras_layers()
        made: dict[str, Any] = {}
        if self.numbers:
            scaled = [
                self._number(given[name], by, layers.get(f"{name}_number"))
                for name, by in transforms_of(self.data)
            ]
            made["dense"] = ops.array.stack(scaled, 1)
        if self.fields:
            parts = [self._field(name, given, layers) for name in self.fields]
            made["ids"] = ops.array.concat(parts, 1) if len(parts) > 1 else parts[0]
        for one in self.data.sequences:
            made[one.column] = self._several(
                given, one.column, one, layers[one.column], (one.padding, one.truncating)
            )
        return keras.Model(given, made, name="features")

    def serving_model(self, model: Any) -> Any:
        """A keras.Model that takes raw columns by name and gives what `model` does, whose inputs
        are called "ids", "dense" and as sequences; it shares the weights of `model`. To be saved
        and exported in its place."""
        front = self.keras_model()
        names = [str(name) for name in model._functional.input_names]
        made = front.output
        missing = [name for name in names if name not in made]
        if missing:
            raise errors.InvalidArgumentError(
                f"the model '{model.name}' has the inputs {', '.join(names)}; of features there "
                f"are {', '.join(made)}, so that nothing could be given for {', '.join(missing)}"
            )
        return keras.Model(front.input, model({name: made[name] for name in names}))

    def _number(self, x: Any, by: NumericTransform, layer: Any) -> Any:
        missing = constant(np.float32(by.missing))
        x = ops.math.where(ops.math.is_nan(x), missing, x)
        if by.kind in ("log1p", "log1p_standard"):
            x = ops.math.multiply(ops.math.sign(x), ops.math.log1p(ops.math.abs(x)))
        x = x if layer is None else layer(x)
        if by.kind != "quantile":
            return x
        return ops.math.multiply(ops.basic.cast(x, float32), constant(np.float32(by.scale)))

    def _text(self, name: str, given: dict[str, Any]) -> Any:
        default = dict(self.data.defaults).get(name)
        if not default:
            return given[name]
        return ops.math.where(
            ops.math.equal(given[name], constant("")), constant(default), given[name]
        )

    def _bucket(self, name: str, given: dict[str, Any], layers: dict[str, Any]) -> Any:
        x, layer = given[name], layers[name]
        default = dict(self.data.defaults).get(name)
        is_nan = ops.math.is_nan(x)
        if default is not None:
            return layer(ops.math.where(is_nan, constant(np.float32(float(default))), x))
        behind = constant(np.int64(len(layer.bin_boundaries) + 1))
        return ops.math.where(is_nan, behind, ops.basic.cast(layer(x), int64))

    def _field(self, name: str, given: dict[str, Any], layers: dict[str, Any]) -> Any:
        """Its ids [batch, n], behind those of the fields before."""
        data = self.data
        many = next((one for one in data.multi_hot if one.column == name), None)
        if many is not None:
            return self._several(given, name, many, layers[name], ("post", "post"))
        if any(one.column == name for one in data.bucketized):
            ids = self._bucket(name, given, layers)
        elif name in data.categorical:
            ids = layers[name](self._text(name, given))
        else:
            (cross,) = {tuple(cross) for cross in data.crosses if "*".join(cross) == name}
            ids = self._crossed(cross, layers[name], given, layers)
        return self._shifted(ops.array.expand_dims(ids, 1), name)

    def _crossed(
        self, cross: Iterable[str], layer: Any, given: dict[str, Any], layers: dict[str, Any]
    ) -> Any:
        buckets = {one.column for one in self.data.bucketized}
        values = [
            self._bucket(name, given, layers) if name in buckets else self._text(name, given)
            for name in cross
        ]
        if self.data.hash == "farmhash":
            return layer(values)
        texts = [ops.strings.as_string(value) for value in values]
        return layer(ops.strings.join(texts, CROSS_SEPARATOR))

    def _several(
        self, given: dict[str, Any], name: str, many: Any, layer: Any, sides: tuple[str, str]
    ) -> Any:
        split = keras.layers.SplitText(many.separator, many.max_length, *sides)
        texts, is_there = split(self._text(name, given))
        ids = self._shifted(layer(texts), name)
        return ops.math.where(is_there, ids, constant(np.int64(-1)))

    def _shifted(self, ids: Any, name: str) -> Any:
        first, _ = self._ids[name]
        return ops.math.add(ops.basic.cast(ids, int64), constant(np.int64(first)))


def _scaling(by: NumericTransform) -> Any:
    """(x - offset) * scale as the layer that Keras has for it."""
    return keras.layers.Normalization(axis=None, mean=by.offset, variance=(1.0 / by.scale) ** 2)
