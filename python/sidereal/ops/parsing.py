"""Values made of bytes: raw numbers, CSV records, tf.train.Example. Names and arguments are those
of tf.io."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes, errors
from .._dispatch import apply, convert
from ..dtypes import as_dtype
from .array import concat, reshape, shape, stack
from .debugging import Assert
from .embedding import SparseTensor
from .indexing import gather
from .math import add, equal, greater_equal, less, logical_and, multiply
from .ragged import RaggedTensor
from .sorting import argsort

__all__ = [
    "FixedLenFeature", "FixedLenSequenceFeature", "RaggedFeature", "SparseFeature", "VarLenFeature",
    "decode_csv", "decode_raw", "encode_raw", "parse_example", "parse_single_example",
]  # fmt: skip


def decode_raw(
    input_bytes: Any, out_type: Any, little_endian: bool = True, fixed_length: int | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """The numbers whose bytes the strings are, along a new last dimension (tf.io.decode_raw). All
    strings must have the same length, unless `fixed_length` says how many bytes are taken of each;
    shorter ones are filled up with zeros."""
    attrs = {
        "out_type": as_dtype(out_type), "little_endian": little_endian,
        "fixed_length": None if fixed_length is None else int(fixed_length),
    }  # fmt: skip
    return apply("DecodeRaw", (convert(input_bytes),), attrs, name=name)


def encode_raw(
    input: Any, little_endian: bool = True, name: str | None = None,
) -> Any:  # fmt: skip
    """The bytes of the numbers along the last dimension, one string per row: what decode_raw()
    reads."""
    return apply("EncodeRaw", (convert(input),), {"little_endian": little_endian}, name=name)


def _empty(dtype: Any) -> Any:
    if as_dtype(dtype) is dtypes.string:
        return convert([], dtypes.string)
    return convert(np.empty(0, as_dtype(dtype)))


def _column_default(value: Any) -> Any:
    """A default as it is given, or, for a dtype, nothing: the column is required."""
    if isinstance(value, (type, np.dtype, dtypes.String)):
        return _empty(value)
    return convert(value)


def decode_csv(
    records: Any, record_defaults: Sequence[Any], field_delim: str = ",",
    use_quote_delim: bool = True, na_value: str = "", select_cols: Sequence[int] | None = None,
    name: str | None = None,
) -> list[Any]:  # fmt: skip
    """The columns of CSV records (tf.io.decode_csv): one tensor of the shape of `records` per entry
    of `record_defaults`, in its dtype. A default is one value, which stands where a field is empty
    or `na_value`, or a dtype or an empty tensor: then the field is required.

    Fields may be in double quotes, with "" for a quote, unless `use_quote_delim` is False.
    `select_cols` are the indices of the columns wanted, counting up; without it there are as many
    fields as defaults. InvalidArgumentError names the record, the field and its text."""
    if not record_defaults:
        raise errors.InvalidArgumentError("record_defaults is empty; name one default per column")
    defaults = [_column_default(value) for value in record_defaults]
    attrs = {
        "field_delim": field_delim, "use_quote_delim": use_quote_delim, "na_value": na_value,
        "select_cols": None if select_cols is None else [int(column) for column in select_cols],
    }  # fmt: skip
    made = apply("DecodeCsv", (convert(records), *defaults), attrs, name=name)
    return list(made) if isinstance(made, tuple) else [made]


# --- tf.train.Example.


class FixedLenFeature(NamedTuple):
    """A feature of a fixed `shape`, a tensor [batch, *shape]. Where an example has not got it,
    `default_value` (one value for all, or of the shape) stands; without one it is required
    (tf.io.FixedLenFeature)."""

    shape: Sequence[int]
    dtype: Any
    default_value: Any = None


class FixedLenSequenceFeature(NamedTuple):
    """A feature of any number of rows of `shape`: a tensor [batch, longest, *shape], filled up with
    `default_value` (zeros, empty strings). `allow_missing` must be true: an example without it has
    no rows (tf.io.FixedLenSequenceFeature)."""

    shape: Sequence[int]
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


class VarLenFeature(NamedTuple):
    """A feature of any length: a SparseTensor (tf.io.VarLenFeature)."""

    dtype: Any


class RaggedFeature(NamedTuple):
    """A feature of any length: a RaggedTensor, or of a single example a vector
    (tf.io.RaggedFeature). `value_key`: the feature's name where it is not the key."""

    dtype: Any
    value_key: str | None = None


class SparseFeature(NamedTuple):
    """A SparseTensor [batch, *size] of two features: values at `value_key`, and their places in the
    row at `index_key`; of more dimensions, lists of both keys and sizes (tf.io.SparseFeature).
    `already_sorted`: the places of a row go up, which spares sorting."""

    index_key: str | Sequence[str]
    value_key: str
    dtype: Any
    size: int | Sequence[int]
    already_sorted: bool = False


Feature = (
    FixedLenFeature | FixedLenSequenceFeature | VarLenFeature | RaggedFeature | SparseFeature
)


class _Request:
    """What a ParseExample op is asked for."""

    def __init__(self) -> None:
        self.dense: dict[str, tuple[list[int], Any]] = {}  # Shape and default.
        self.sparse: dict[str, str] = {}  # Names of dtypes.
        self.ragged: dict[str, str] = {}

    def add(self, key: str, feature: Feature) -> None:
        if isinstance(feature, FixedLenFeature):
            self.dense[key] = _fixed(key, feature)
        elif isinstance(feature, FixedLenSequenceFeature):
            self.dense[key] = _sequence(key, feature)
        elif isinstance(feature, VarLenFeature):
            self._take(self.sparse, key, feature.dtype)
        elif isinstance(feature, RaggedFeature):
            self._take(self.ragged, feature.value_key or key, feature.dtype)
        elif isinstance(feature, SparseFeature):
            for index_key in _listed(feature.index_key):
                self._take(self.sparse, index_key, "int64")
            self._take(self.sparse, feature.value_key, feature.dtype)
        else:
            raise errors.InvalidArgumentError(
                f"feature '{key}' is {feature!r}; it must be a FixedLenFeature, VarLenFeature, "
                "RaggedFeature, SparseFeature or FixedLenSequenceFeature"
            )

    @staticmethod
    def _take(into: dict[str, str], key: str, dtype: Any) -> None:
        name = dtypes.name_of(dtype)
        if into.setdefault(key, name) != name:
            raise errors.InvalidArgumentError(
                f"feature '{key}' is asked for as {into[key]} and as {name}"
            )

    def run(self, serialized: Any, name: str | None) -> tuple[dict, dict, dict]:
        """The outputs: of dense features tensors, of sparse ones SparseTensors, of ragged ones
        RaggedTensors."""
        shapes = [number for extents, _ in self.dense.values() for number in extents]
        attrs = {
            "dense_keys": list(self.dense), "dense_shapes": shapes,
            "sparse_keys": list(self.sparse), "sparse_types": list(self.sparse.values()),
            "ragged_keys": list(self.ragged), "ragged_types": list(self.ragged.values()),
        }  # fmt: skip
        defaults = [default for _, default in self.dense.values()]
        made = apply("ParseExample", (serialized, *defaults), attrs, name=name)
        outputs = iter(made if isinstance(made, tuple) else (made,))
        columns = [[next(outputs) for _ in self.sparse] for _ in range(3)]
        sparse = {key: SparseTensor(*parts) for key, *parts in zip(self.sparse, *columns)}
        dense = {key: next(outputs) for key in self.dense}
        values = [next(outputs) for _ in self.ragged]
        splits = [next(outputs) for _ in self.ragged]
        ragged = {key: RaggedTensor(*parts) for key, *parts in zip(self.ragged, values, splits)}
        return dense, sparse, ragged


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _extents(key: str, given: Any) -> list[int]:
    extents = [given] if isinstance(given, (int, np.integer)) else list(given)
    if any(extent is None or int(extent) < 0 for extent in extents):
        raise errors.InvalidArgumentError(
            f"feature '{key}' has the shape {extents}; all extents must be known: use a "
            "VarLenFeature, RaggedFeature or FixedLenSequenceFeature"
        )
    return [int(extent) for extent in extents]


def _fixed(key: str, feature: FixedLenFeature) -> tuple[list[int], Any]:
    extents = _extents(key, feature.shape)
    coded = [len(extents), *extents]
    if feature.default_value is None:
        return coded, _empty(feature.dtype)
    default = convert(feature.default_value, as_dtype(feature.dtype))
    count = int(np.prod(extents))
    if default.shape is not None and int(np.prod(default.shape)) == 1 != count:
        return coded, apply("Fill", (reshape(default, []),), {"shape": extents})
    return coded, reshape(default, extents)


def _sequence(key: str, feature: FixedLenSequenceFeature) -> tuple[list[int], Any]:
    if not feature.allow_missing:
        raise errors.InvalidArgumentError(
            f"feature '{key}': allow_missing must be true, as rows of a batch are filled up to one "
            "length"
        )
    extents = _extents(key, feature.shape)
    coded = [len(extents) + 1, -1, *extents]
    if feature.default_value is None:
        return coded, _empty(feature.dtype)
    return coded, reshape(convert(feature.default_value, as_dtype(feature.dtype)), [1])


def parse_example(
    serialized: Any, features: Mapping[str, Feature], example_names: Any = None,
    name: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The `features` of a vector of serialized tf.train.Example messages (tf.io.parse_example): a
    dict with a Tensor, SparseTensor or RaggedTensor for each key, as its kind says. dtypes are
    float32, int64 and string, as in the messages. Features that are not asked for are skipped.

    InvalidArgumentError names the example (its number; `example_names` are not used) and the
    feature: bytes that are no message, another kind of values, a wrong number of them, one that is
    required and missing."""
    del example_names
    if not features:
        raise errors.InvalidArgumentError("no features are asked for")
    request = _Request()
    for key, feature in features.items():
        request.add(key, feature)
    examples = convert(serialized)
    dense, sparse, ragged = request.run(examples, name)
    out: dict[str, Any] = {}
    for key, feature in features.items():
        if isinstance(feature, VarLenFeature):
            out[key] = sparse[key]
        elif isinstance(feature, RaggedFeature):
            out[key] = ragged[feature.value_key or key]
        elif isinstance(feature, SparseFeature):
            out[key] = _placed(key, feature, sparse, shape(examples, "int64"))
        else:
            out[key] = dense[key]
    return out


def parse_single_example(
    serialized: Any, features: Mapping[str, Feature], example_name: Any = None,
    name: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """As parse_example(), of one message: without the dimension of examples
    (tf.io.parse_single_example). Ragged features are vectors."""
    made = parse_example(serialized, features, example_name, name)
    return {
        key: value.values if isinstance(value, RaggedTensor) else value
        for key, value in made.items()
    }


def _placed(
    key: str, feature: SparseFeature, sparse: Mapping[str, SparseTensor], rows: Any
) -> SparseTensor:
    """The values at the places that the index features say."""
    values = sparse[feature.value_key]
    sizes = [int(size) for size in _listed(feature.size)]
    index_keys = _listed(feature.index_key)
    if len(sizes) != len(index_keys):
        raise errors.InvalidArgumentError(
            f"feature '{key}' has {len(index_keys)} index keys and {len(sizes)} sizes"
        )
    zero = convert(0, "int64")
    columns = []
    for index_key, size in zip(index_keys, sizes):
        places = sparse[index_key]
        text = [f"feature '{key}': '{index_key}' and '{feature.value_key}' have different lengths"]
        same = equal(shape(places.indices), shape(values.indices))
        Assert(same, text)
        Assert(equal(places.indices, values.indices), text)
        inside = logical_and(
            greater_equal(places.values, zero), less(places.values, convert(size, "int64"))
        )
        Assert(inside, [f"feature '{key}': an index in '{index_key}' is not below {size}"])
        columns.append(places.values)
    # The last column of the triple is the place among the row's values; before it stands the row.
    heads = values.indices[:, :-1]
    indices = concat([heads, stack(columns, 1)], 1)
    elements = values.values
    extents = concat([rows, convert(np.array(sizes, np.int64))], 0)
    if not feature.already_sorted:
        order = argsort(_position(indices, extents, len(sizes) + heads.shape[1]), stable=True)
        indices, elements = gather(indices, order), gather(elements, order)
    return SparseTensor(indices, elements, extents)


def _position(indices: Any, extents: Any, rank: int) -> Any:
    """Where the elements would be in a flat tensor."""
    flat = indices[:, 0]
    for axis in range(1, rank):
        flat = add(multiply(flat, extents[axis]), indices[:, axis])
    return flat
