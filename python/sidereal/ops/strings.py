"""Strings, bytes of any length: sidereal.strings. Names and arguments are TensorFlow's. No op on
strings has a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import errors
from .._dispatch import align, apply, convert
from ..dtypes import as_dtype
from ._arguments import index_tensor, rank_of, static_ints
from .array import range as range_of
from .array import shape
from .ragged import RaggedTensor

# ruff: noqa: A001 - the names are TensorFlow's.

__all__ = [
    "as_string", "bytes_split", "category_id", "format", "join", "length", "lower", "reduce_join",
    "regex_full_match", "regex_replace", "split", "strip", "substr", "to_hash_bucket",
    "to_hash_bucket_fast", "to_hash_bucket_strong", "to_number", "upper",
]


# --- Numbers of strings and strings of numbers.


def to_hash_bucket_fast(input: Any, num_buckets: int, name: str | None = None) -> Any:
    """A number below `num_buckets` for each string, int64 (tf.strings.to_hash_bucket_fast): its
    FarmHash fingerprint modulo num_buckets, the same number as TensorFlow's. Equal strings always
    have equal numbers; who can choose the strings can make many different ones collide."""
    attrs = {"num_buckets": int(num_buckets)}
    return apply("StringToHashBucketFast", (convert(input),), attrs, name=name)


def to_hash_bucket_strong(
    input: Any, num_buckets: int, key: Sequence[int], name: str | None = None
) -> Any:
    """As to_hash_bucket_fast(), with the SipHash-2-4 under `key`, two integers of 64 bits
    (tf.strings.to_hash_bucket_strong; the same numbers). Who does not know the key cannot find
    strings that collide. About twice the time."""
    words = [int(word) & (1 << 64) - 1 for word in key]
    signed = [word - (1 << 64) if word >> 63 else word for word in words]
    attrs = {"num_buckets": int(num_buckets), "key": signed}
    return apply("StringToHashBucketStrong", (convert(input),), attrs, name=name)


def category_id(input: Any, field: int, num_buckets: int, name: str | None = None) -> Any:
    """The id that `sidereal train` and sidereal.data.csv() give each string of a categorical
    column, int64: field * num_buckets + a number below `num_buckets`, chosen by the hash XXH3.

    field: which categorical column, from 0. num_buckets: `hash_buckets` of the data.
    """
    attrs = {"field": field, "num_buckets": num_buckets}
    return apply("CategoryId", (convert(input),), attrs, name=name)


def to_hash_bucket(input: Any, num_buckets: int, name: str | None = None) -> Any:
    """As to_hash_bucket_fast(), with the hash XXH3 (tf.strings.to_hash_bucket). The numbers are not
    TensorFlow's here, whose hash is an internal one: prefer to_hash_bucket_fast()."""
    attrs = {"num_buckets": int(num_buckets)}
    return apply("StringToHashBucket", (convert(input),), attrs, name=name)


def as_string(
    input: Any, precision: int = -1, scientific: bool = False, shortest: bool = False,
    width: int = -1, fill: str = "", name: str | None = None,
) -> Any:  # fmt: skip
    """Numbers and bools as text (tf.strings.as_string), as C's printf writes them: floats with
    `precision` digits behind the point (6 if negative), or in the `scientific` or the `shortest`
    form; at least `width` long, filled up with blanks in front, or as `fill` says: '0' zeros in
    front, '-' blanks behind, '+' and ' ' a sign before positive numbers. Strings stay as they
    are."""
    x = convert(input)
    if x.dtype.name == "string":
        return x
    attrs = {
        "precision": int(precision), "scientific": scientific, "shortest": shortest,
        "width": int(width), "fill": fill,
    }  # fmt: skip
    return apply("AsString", (x,), attrs, name=name)


def to_number(input: Any, out_type: Any = "float32", name: str | None = None) -> Any:
    """The numbers that strings say (tf.strings.to_number): an integer dtype, float32 or float64.
    White space around a number is ignored. InvalidArgumentError shows the first string that is no
    number, or an integer that does not fit."""
    attrs = {"out_type": as_dtype(out_type)}
    return apply("StringToNumber", (convert(input),), attrs, name=name)


def format(
    template: str, inputs: Any, placeholder: str = "{}", summarize: int = 3,
    name: str | None = None,
) -> Any:  # fmt: skip
    """`template` with each `placeholder` replaced by the text of one of `inputs`, a tensor or a
    list of them (tf.strings.format): a string scalar. Of each dimension `summarize` elements at
    each end are shown; -1: all."""
    listed = isinstance(inputs, (list, tuple)) and not hasattr(inputs, "_fields")
    values = [convert(value) for value in (inputs if listed else [inputs])]
    attrs = {"template": template, "placeholder": placeholder, "summarize": int(summarize)}
    return apply("StringFormat", values, attrs, name=name)


# --- Joining and cutting.


def join(inputs: Sequence[Any], separator: str | bytes = "", name: str | None = None) -> Any:
    """The strings of all `inputs` one behind another, element by element, broadcasting, with
    `separator` between them (tf.strings.join)."""
    values = align(*inputs)
    return apply("StringJoin", values, {"separator": separator}, name=name)


def reduce_join(
    inputs: Any, axis: Any = None, keepdims: bool = False, separator: str | bytes = "",
    name: str | None = None,
) -> Any:  # fmt: skip
    """The strings along `axis` one behind another (tf.strings.reduce_join). Of several axes the
    first runs fastest; None: all elements, row by row."""
    axes = None if axis is None else static_ints(axis)
    if axis is not None and axes is None:
        raise errors.InvalidArgumentError(f"axis is {axis!r}; it must be integers known beforehand")
    attrs = {"axes": axes, "keep_dims": keepdims, "separator": separator}
    return apply("ReduceJoin", (convert(inputs),), attrs, name=name)


def split(
    input: Any, sep: str | bytes | None = None, maxsplit: int = -1, name: str | None = None
) -> Any:
    """The pieces of each string between separators (tf.strings.split): a RaggedTensor with a row of
    pieces per string, or of one string the vector of its pieces. Without `sep`, pieces are between
    runs of white space, and none is empty; with one, "a,,b" has three. At most `maxsplit` cuts are
    made in a string. See RaggedTensor.to_sparse() and to_tensor()."""
    x = convert(input)
    attrs = {"separator": sep or "", "maxsplit": int(maxsplit)}
    return _rows(x, apply("StringSplit", (x,), attrs, name=name))


def bytes_split(input: Any, name: str | None = None) -> Any:
    """The bytes of each string, as strings of one byte (tf.strings.bytes_split): a RaggedTensor, or
    of one string a vector."""
    x = convert(input)
    return _rows(x, apply("StringSplit", (x,), {"each_byte": True}, name=name))


def _rows(x: Any, made: Any) -> Any:
    """The pieces by string, and the strings by the other dimensions of `x`."""
    values, splits = made
    rank = rank_of(x, "splitting")
    if rank == 0:
        return values
    ragged = RaggedTensor(values, splits)
    extents = shape(x, "int64")
    for axis in range(rank - 1, 0, -1):
        outer = apply("ReduceProd", (extents[:axis],), {"axes": [0]})
        step = extents[axis]
        # A step of 0 could not count: there are as many splits whatever the extent is.
        count = range_of(convert(0, "int64"), outer + 1, convert(1, "int64"))
        ragged = RaggedTensor(ragged, count * step)
    return ragged


def substr(input: Any, pos: Any, len: Any, unit: str = "BYTE", name: str | None = None) -> Any:
    """`len` bytes of each string from `pos` on, fewer where it ends (tf.strings.substr); the three
    broadcast. A negative pos counts from the end; InvalidArgumentError for one outside of its
    string. With unit 'UTF8_CHAR' characters of UTF-8 are counted."""
    begin, size = align(index_tensor(pos), len)
    return apply("Substr", (convert(input), begin, size), {"unit": unit}, name=name)


# --- One by one.


def length(input: Any, unit: str = "BYTE", name: str | None = None) -> Any:
    """The bytes, or with unit 'UTF8_CHAR' the characters of UTF-8, of each string, int32
    (tf.strings.length)."""
    return apply("StringLength", (convert(input),), {"unit": unit}, name=name)


def _ascii_only(encoding: str) -> None:
    if encoding:
        raise errors.UnimplementedError(
            f"encoding '{encoding}' is not known: only ASCII letters change case"
        )


def lower(input: Any, encoding: str = "", name: str | None = None) -> Any:
    """ASCII letters in lower case, other bytes as they are (tf.strings.lower)."""
    _ascii_only(encoding)
    return apply("StringLower", (convert(input),), None, name=name)


def upper(input: Any, encoding: str = "", name: str | None = None) -> Any:
    """ASCII letters in upper case, other bytes as they are (tf.strings.upper)."""
    _ascii_only(encoding)
    return apply("StringUpper", (convert(input),), None, name=name)


def strip(input: Any, name: str | None = None) -> Any:
    """Each string without white space at its ends (tf.strings.strip)."""
    return apply("StringStrip", (convert(input),), None, name=name)


def regex_replace(
    input: Any, pattern: str, rewrite: str, replace_global: bool = True, name: str | None = None
) -> Any:
    """Each string with what `pattern` matches replaced by `rewrite`, everywhere or only the first
    time (tf.strings.regex_replace). Patterns are RE2's (github.com/google/re2/wiki/Syntax); in the
    rewrite, \\1 to \\9 are the groups and \\0 is the match."""
    attrs = {"pattern": pattern, "rewrite": rewrite, "replace_global": replace_global}
    return apply("RegexReplace", (convert(input),), attrs, name=name)


def regex_full_match(input: Any, pattern: str, name: str | None = None) -> Any:
    """Whether `pattern`, a regular expression of RE2, matches the whole of each string
    (tf.strings.regex_full_match)."""
    return apply("RegexFullMatch", (convert(input),), {"pattern": pattern}, name=name)
