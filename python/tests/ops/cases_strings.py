"""Cases of strings, and of values made of bytes. What hashes must be was computed with the
libraries that define them; the rest is said in Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from case import Case

Inputs = Callable[[np.random.Generator], Sequence[Any]]

#: Empty, plain, not UTF-8, with zero bytes at the end, two bytes for one character, white space.
ODD = [b"", b"abc", b"\xff\xfe", b"a\0b\0", "é".encode(), b" \t Mixed Case\n"]


def text(value: Any, shape: Sequence[int] | None = None) -> np.ndarray:
    """An array of strings, with the zero bytes at their ends that NumPy's own would drop."""
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    array = np.empty(len(items), dtype=object)
    array[:] = [item.encode() if isinstance(item, str) else item for item in items]
    if shape is None:
        shape = (len(items),) if isinstance(value, (list, tuple)) else ()
    return array.reshape(shape)


def given(*arrays: Any) -> Inputs:
    ready = (np.ndarray, np.generic)
    return lambda rng: [array if isinstance(array, ready) else text(array) for array in arrays]


def each(function: Callable[..., Any], dtype: Any = object) -> Callable[..., np.ndarray]:
    """`function` of every element, broadcasting."""

    def numpy(*arrays: np.ndarray) -> np.ndarray:
        spread = np.broadcast_arrays(*arrays)
        out = np.empty(spread[0].shape, dtype=dtype)
        for at in np.ndindex(*out.shape):
            out[at] = function(*(array[at] for array in spread))
        return out

    return numpy


def known(values: Any) -> Callable[..., Any]:
    return lambda *_: values


def strings(function: Callable[..., Any], attrs: dict[str, Any] | None = None,
            dtype: Any = object) -> list[Case]:
    """Cases of an op of one string: odd ones, a scalar, a matrix, none."""
    inputs = {
        "odd": text(ODD), "scalar": text("One"), "matrix": text(ODD, (2, 3)),
        "empty": text([], (0, 2)),
    }  # fmt: skip
    return [
        Case(given(array), attrs or {}, numpy=each(function, dtype), dtypes=[], name=name)
        for name, array in inputs.items()
    ]


# --- Numbers.

#: FarmHash Fingerprint64 and SipHash-2-4 (key 1, 2), modulo 1000.
WORDS = ["Hello", "TensorFlow", "", "a"]
SIPHASH_OF_PAPER = 0xA129CA6149BE45E5  # Of the bytes 0 to 14 under the key of bytes 0 to 15.
KEY_OF_PAPER = [0x0706050403020100, 0x0F0E0D0C0B0A0908]

BUCKETS = {"num_buckets": 1000}


def below(buckets: int) -> Callable[[Any, Any], None]:
    """Hashes are below, and equal where the strings are."""

    def check(inputs: Any, outputs: Any) -> None:
        assert outputs[0].dtype == np.int64 and outputs[0].shape == inputs[0].shape
        assert ((outputs[0] >= 0) & (outputs[0] < buckets)).all()
        seen: dict[bytes, int] = {}
        for word, number in zip(inputs[0].ravel(), outputs[0].ravel()):
            assert seen.setdefault(word, number) == number

    return check


def hashes(attrs: dict[str, Any]) -> list[Case]:
    return [
        Case(given(text([*ODD, *ODD], (3, 4))), {**BUCKETS, **attrs}, check=below(1000), dtypes=[],
             name="odd"),
        Case(given("x"), {"num_buckets": 1, **attrs}, numpy=known(np.int64(0)), dtypes=[],
             name="one"),
        Case(given(text([])), {**BUCKETS, **attrs}, numpy=known(np.zeros(0, np.int64)), dtypes=[],
             name="empty"),
    ]  # fmt: skip


def number_text(value: Any, precision: int = -1, form: str = "f", width: int = 0,
                fill: str = "") -> bytes:
    if isinstance(value, (bool, np.bool_)):
        return b"true" if value else b"false"
    if isinstance(value, np.integer):
        return ("%" + fill + (str(width) if width else "") + "d").encode() % int(value)
    digits = f".{precision}" if precision >= 0 else ""
    pattern = f"%{fill}{width if width else ''}{digits}{form}"
    return (pattern % float(value)).encode()


NUMBERS = np.array([0.0, -0.0, 1.5, -1234.56789, 1e10, 3e-7, np.inf, -np.inf, np.nan])


def as_string(attrs: dict[str, Any], name: str, array: Any = NUMBERS,
              dtypes: Sequence[str] = ("float32", "float64")) -> Case:
    form = "e" if attrs.get("scientific") else "g" if attrs.get("shortest") else "f"
    settings = {key: attrs[key] for key in ("precision", "width", "fill") if key in attrs}
    return Case(lambda rng: [array], attrs, numpy=each(lambda x: number_text(x, form=form,
                **settings)), dtypes=dtypes, name=name)


AS_STRING = [
    as_string({}, "plain"),
    as_string({"precision": 2}, "two", dtypes=["float16", "bfloat16", "float32", "float64"]),
    as_string({"scientific": True, "precision": 3}, "scientific"),
    as_string({"shortest": True}, "shortest"),
    as_string({"width": 12}, "wide"),
    as_string({"width": 12, "fill": "-", "precision": 1}, "left"),
    as_string({"width": 12, "fill": "0", "precision": 1}, "zeros", NUMBERS[:6]),
    as_string({"fill": "+"}, "plus"),
    as_string({"fill": " "}, "blank"),
    as_string({}, "int", np.array([[0, -5], [1 << 62, -(1 << 63)]]), []),
    as_string({"width": 6, "fill": "0"}, "int_zeros", np.int32([7, -7]), []),
    as_string({"width": 3}, "narrow", np.int16([12345, 1]), []),
    as_string({}, "uint", np.uint64([0, (1 << 64) - 1]), []),
    as_string({}, "bool", np.array([True, False]), []),
    as_string({}, "scalar", np.float32(2.5), []),
    as_string({}, "empty", np.zeros((0, 3), np.float32), []),
]

DIGITS = ["0", "-12", " 7\n", "+3"]
REALS = ["1.5", " -2e3 ", "1e400", "-1e400", "1e-400", "inf", "-Infinity", "NaN", ".5", "3.", "+4"]


def numbers(words: Any, dtype: str) -> Case:
    def numpy(array: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore"):
            return each(lambda x: np.dtype(dtype).type(float(x) if "f" in dtype else int(x)),
                        dtype)(array)

    array = words if isinstance(words, np.ndarray) else text(words)
    return Case(given(array), {"out_type": dtype}, numpy=numpy, dtypes=[], name=dtype)


TO_NUMBER = [
    *(numbers(DIGITS, dtype) for dtype in ("int8", "int16", "int32", "int64")),
    numbers(["0", "255"], "uint8"),
    numbers(["18446744073709551615"], "uint64"),
    numbers(REALS, "float32"),
    numbers(REALS, "float64"),
    Case(given("1.25"), numpy=known(np.float32(1.25)), dtypes=[], name="scalar"),
    Case(given(text([], (2, 0))), numpy=known(np.zeros((2, 0), np.float32)), dtypes=[],
         name="empty"),
]  # fmt: skip

# --- Joining and cutting.


def joined(separator: bytes) -> Callable[..., np.ndarray]:
    return each(lambda *parts: separator.join(parts))


STRING_JOIN = [
    Case(given(text(ODD), text(ODD[::-1])), numpy=joined(b""), dtypes=[], name="two"),
    Case(given(text(ODD, (2, 3)), "x", text(["p", "q", "r"])), {"separator": ", "},
         numpy=joined(b", "), dtypes=[], name="broadcast"),
    Case(given(text(["p", "q"], (2, 1)), text(["x", "y", "z"])), {"separator": b"\xff\0"},
         numpy=joined(b"\xff\0"), dtypes=[], name="outer"),
    Case(given("a"), numpy=joined(b""), dtypes=[], name="one"),
    Case(given(text([], (0, 2)), "a"), numpy=joined(b""), dtypes=[], name="empty"),
]  # fmt: skip


def reduced(axes: Any, keep: bool, separator: bytes) -> Callable[[np.ndarray], np.ndarray]:
    def numpy(x: np.ndarray) -> np.ndarray:
        order = list(range(x.ndim))[::-1] if axes is None else [axis % x.ndim for axis in axes]
        rest = [axis for axis in range(x.ndim) if axis not in order]
        moved = x.transpose(*rest, *order[::-1])
        kept = [x.shape[axis] for axis in rest]
        rows = moved.reshape(int(np.prod(kept)), int(np.prod([x.shape[a] for a in order])))
        out = text([separator.join(row) for row in rows.tolist()], kept)
        if keep:
            out = out.reshape([1 if axis in order else n for axis, n in enumerate(x.shape)])
        return out

    return numpy


def reduce_join(x: np.ndarray, axes: Any, keep: bool = False, separator: bytes = b"") -> Case:
    attrs = {"axes": axes, "keep_dims": keep, "separator": separator}
    name = f"{len(x.shape)}_{axes}_{keep}".replace(" ", "")
    return Case(given(x), attrs, numpy=reduced(axes, keep, separator), dtypes=[], name=name)


CUBE = text([f"{i}" for i in range(24)], (2, 3, 4))
REDUCE_JOIN = [
    *(reduce_join(CUBE, axes, keep, b"-") for axes in (None, [0], [1], [-1, 0], [0, 2], [])
      for keep in (False, True)),
    reduce_join(text(ODD), [0]),
    reduce_join(text([]), [0], True, b"-"),
    reduce_join(text([], (2, 0)), [1], False, b"-"),
    reduce_join(text([], (0, 2)), [1]),
]


def pieces(function: Callable[[bytes], list[bytes]]) -> Callable[[np.ndarray], Any]:
    def numpy(x: np.ndarray) -> Any:
        rows = [function(word) for word in x.ravel().tolist()]
        splits = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return text([piece for row in rows for piece in row]), splits

    return numpy


def split(words: Any, attrs: dict[str, Any], function: Callable[[bytes], list[bytes]],
          name: str) -> Case:
    return Case(given(words), attrs, numpy=pieces(function), dtypes=[], name=name)


PATHS = ["a,b", "", ",", "no", ",x,,y,"]
SPACED = ["  two words ", "", " \t\n", "one", b"\xff \0 \x0b\x0c"]
SPLIT = [
    split(SPACED, {}, lambda x: x.split(), "space"),
    split(SPACED, {"maxsplit": 1}, lambda x: x.split(None, 1), "space_once"),
    split(SPACED, {"maxsplit": 0}, lambda x: x.split(None, 0), "space_never"),
    split(PATHS, {"separator": ","}, lambda x: x.split(b","), "comma"),
    split(PATHS, {"separator": ",", "maxsplit": 1}, lambda x: x.split(b",", 1), "once"),
    split(PATHS, {"separator": ",", "skip_empty": True},
          lambda x: [piece for piece in x.split(b",") if piece], "skip"),
    split(["a<>b<<>>c", "<>"], {"separator": "<>"}, lambda x: x.split(b"<>"), "long"),
    split(["a<>b c", "> <"], {"separator": "<> ", "each_byte": True},
          lambda x: re.split(b"[<> ]", x), "bytes"),
    split(ODD, {"each_byte": True}, lambda x: [x[i : i + 1] for i in range(len(x))], "every"),
    split(text("p q"), {}, lambda x: x.split(), "scalar"),
    split(text(["p q", "r"], (1, 2)), {}, lambda x: x.split(), "matrix"),
    split(text([], (0, 3)), {}, lambda x: x.split(), "empty"),
]  # fmt: skip


def part(text: bytes, pos: int, size: int) -> bytes:
    begin = pos if pos >= 0 else len(text) + pos
    return text[begin : begin + size]


def part_of_text(text: bytes, pos: int, size: int) -> bytes:
    return part(text.decode(), pos, size).encode()  # type: ignore[arg-type, attr-defined]


SUBSTR = [
    Case(given(text(["hello", "worl\0"]), np.int32(1), np.int32(3)), numpy=each(part), dtypes=[],
         name="scalars"),
    Case(given(text(["hello", "world"], (2, 1)), np.int64([0, -5, 5]), np.int64([2, 9, 0])),
         numpy=each(part), dtypes=[], name="broadcast"),
    Case(given(text(["häß", "日本語", ""]), np.int64([-2, 1, 0]), np.int64(1)),
         {"unit": "UTF8_CHAR"}, numpy=each(part_of_text), dtypes=[], name="characters"),
    Case(given(text([]), np.int32(1), np.int32(3)), numpy=each(part), dtypes=[], name="empty"),
]  # fmt: skip

FORMAT = [
    Case(given(np.arange(10), text(["a", "b"])), {"template": "x {}, y {}."}, dtypes=[],
         numpy=known(text('x [0 1 2 ... 7 8 9], y ["a" "b"].')), name="two"),
    Case(given(np.array([[1, 2], [3, 4]])), {"template": "%s", "placeholder": "%s",
         "summarize": -1}, dtypes=[], numpy=known(text("[[1 2] [3 4]]")), name="all"),
]  # fmt: skip

# --- Bytes.


def raw(dtype: str, order: str = "<") -> Callable[[np.ndarray], np.ndarray]:
    def numpy(x: np.ndarray) -> np.ndarray:
        rows = [np.frombuffer(word, np.dtype(dtype).newbyteorder(order)) for word in x.ravel()]
        return np.array(rows).astype(dtype).reshape(*x.shape, -1)

    return numpy


def to_bytes(order: str = "<") -> Callable[[np.ndarray], np.ndarray]:
    def numpy(x: np.ndarray) -> np.ndarray:
        rows = x.astype(x.dtype.newbyteorder(order)).reshape(int(np.prod(x.shape[:-1])), -1)
        return text([row.tobytes() for row in rows], x.shape[:-1])

    return numpy


EIGHT = text([bytes(range(8)), b"\xff" * 8])
DECODE_RAW = [
    *(Case(given(EIGHT), {"out_type": dtype}, numpy=raw(dtype), dtypes=[], name=dtype)
      for dtype in ("uint8", "int16", "uint32", "int64")),
    Case(given(EIGHT), {"out_type": "int32", "little_endian": False}, numpy=raw("int32", ">"),
         dtypes=[], name="big"),
    Case(given(text([b"\1\0\2", b""])), {"out_type": "bool", "fixed_length": 2}, dtypes=[],
         numpy=known(np.array([[True, False], [False, False]])), name="padded"),
    Case(given(text(b"\0\0\x80?")), {"out_type": "float32"}, numpy=known(np.float32([1])),
         dtypes=[], name="scalar"),
    Case(given(text([])), {"out_type": "int32"}, numpy=known(np.zeros((0, 0), np.int32)), dtypes=[],
         name="empty"),
]  # fmt: skip
ENCODE_RAW = [
    Case(given(np.arange(12, dtype=np.int16).reshape(2, 2, 3)), numpy=to_bytes(), dtypes=[]),
    Case(lambda rng: [rng.normal(size=(3, 2))], {"little_endian": False}, numpy=to_bytes(">"),
         name="big"),
    Case(given(np.zeros((2, 0), np.int32)), numpy=to_bytes(), dtypes=[], name="empty"),
]  # fmt: skip

NONE = np.zeros(0, np.int64)
DECODE_CSV = [
    Case(given(text(["1,x,2.5", ' 7 ,"a ""b"", c",', ',"",-1e3']), np.int64([9]), text(["none"]),
               np.float32([0.5])),
         numpy=known((np.int64([1, 7, 9]), text(["x", 'a "b", c', "none"]),
                      np.float32([2.5, 0.5, -1e3]))),
         dtypes=[], name="columns"),
    Case(given(text(["1;NA;3", "4;5;6"], (2, 1)), NONE, np.int32(-1)), dtypes=[],
         attrs={"field_delim": ";", "na_value": "NA", "select_cols": [0, 1]},
         numpy=known((np.int64([[1], [4]]), np.int32([[-1], [5]]))), name="selected"),
    Case(given('"a",b', text(["-"]), text(["-"])), {"use_quote_delim": False}, dtypes=[],
         numpy=known((text('"a"'), text("b"))), name="scalar"),
    Case(given(text([], (0, 2)), np.float64([1])), numpy=known(np.zeros((0, 2))), dtypes=[],
         name="empty"),
]  # fmt: skip


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def message(*fields: tuple[int, bytes]) -> bytes:
    return b"".join(bytes([number << 3 | 2]) + varint(len(body)) + body for number, body in fields)


def example(**features: Any) -> bytes:
    """A tf.train.Example by hand; the fields of Feature are 1: bytes, 2: float, 3: int64."""
    entries = []
    for name, values in features.items():
        if values and isinstance(values[0], bytes):
            feature = message((1, message(*((1, value) for value in values))))
        elif values and isinstance(values[0], float):
            feature = message((2, message((1, np.array(values, "<f4").tobytes()))))
        else:
            feature = message((3, message((1, b"".join(map(varint, values))))))
        entries.append((1, message((1, name.encode()), (2, feature))))
    return message((1, message(*entries)))


EXAMPLES = [
    example(age=[41], tags=[b"x", b"y\0"], prices=[1.5, -2.0, 0.25], path=[1, 2, 3, 4]),
    example(age=[-1 << 63], other=[5]),
    b"",
    example(tags=[b"\xff"], prices=[7.0], path=[9, 8], age=[3]),
]
KEYS = {
    "dense_keys": ["age", "path"], "dense_shapes": [0, 2, -1, 2], "sparse_keys": ["tags"],
    "sparse_types": ["string"], "ragged_keys": ["prices", "none"],
    "ragged_types": ["float32", "int64"],
}  # fmt: skip
DEFAULTS = [np.int64([7]), np.int64([-1])]
PARSE_EXAMPLE = [
    Case(given(text(EXAMPLES), *DEFAULTS), KEYS, dtypes=[], numpy=known((
        np.int64([[0, 0], [0, 1], [3, 0]]), text([b"x", b"y\0", b"\xff"]), np.int64([4, 2]),
        np.int64([41, -1 << 63, 7, 3]),
        np.int64([[[1, 2], [3, 4]], [[-1, -1]] * 2, [[-1, -1]] * 2, [[9, 8], [-1, -1]]]),
        np.float32([1.5, -2, 0.25, 7]), NONE,
        np.int64([0, 3, 3, 3, 4]), np.zeros(5, np.int64))), name="batch"),
    Case(given(text(EXAMPLES[0]), *DEFAULTS), KEYS, dtypes=[], numpy=known((
        np.int64([[0], [1]]), text([b"x", b"y\0"]), np.int64([2]), np.int64(41),
        np.int64([[1, 2], [3, 4]]), np.float32([1.5, -2, 0.25]), NONE,
        np.int64([0, 3]), np.zeros(2, np.int64))), name="scalar"),
    Case(given(text([]), *DEFAULTS), KEYS, dtypes=[], numpy=known((
        np.zeros((0, 2), np.int64), text([]), np.int64([0, 0]), NONE,
        np.zeros((0, 0, 2), np.int64), np.zeros(0, np.float32), NONE, np.int64([0]),
        np.int64([0]))), name="empty"),
]  # fmt: skip

WHITE = b" \t\n\v\f\r"

CASES: dict[str, list[Case]] = {
    "StringToHashBucketFast": hashes({}) + [
        # What TensorFlow's documentation shows, modulo 3, and fingerprints of FarmHash.
        Case(given(["Hello", "TensorFlow", "2.x"]), {"num_buckets": 3}, dtypes=[],
             numpy=known(np.int64([0, 2, 2])), name="tensorflow"),
    ],
    "StringToHashBucketStrong": hashes({"key": [1, 2]}) + [
        Case(given([bytes(range(15))]), {"num_buckets": (1 << 63) - 1, "key": KEY_OF_PAPER},
             dtypes=[], numpy=known(np.int64([SIPHASH_OF_PAPER % ((1 << 63) - 1)])), name="paper"),
        Case(given(["Hello", "TF"]), {"num_buckets": 3, "key": [1, 2]}, dtypes=[],
             numpy=known(np.int64([2, 0])), name="tensorflow"),
    ],
    "StringToHashBucket": hashes({}),
    "CategoryId": [
        Case(given(text([*ODD, *ODD], (3, 4))), {"field": 0, **BUCKETS}, check=below(1000),
             dtypes=[], name="odd"),
        Case(given(["x", "", "yes"]), {"field": 7, "num_buckets": 1}, dtypes=[],
             numpy=known(np.int64([7, 7, 7])), name="one"),
        Case(given(text([])), {"field": 2, **BUCKETS}, numpy=known(np.zeros(0, np.int64)),
             dtypes=[], name="empty"),
    ],
    "AsString": AS_STRING,
    "StringToNumber": TO_NUMBER,
    "StringJoin": STRING_JOIN,
    "Add": [
        Case(given(text(ODD), "!"), numpy=joined(b""), dtypes=[], name="strings"),
        Case(given(text(["p", "q"], (2, 1)), text(["x", "y"])), numpy=joined(b""), dtypes=[],
             name="strings_broadcast"),
    ],
    "ReduceJoin": REDUCE_JOIN,
    "StringSplit": SPLIT,
    "StringFormat": FORMAT,
    "Substr": SUBSTR,
    "StringLength": strings(len, dtype=np.int32) + [
        Case(given(["häß", "日本語", ""]), {"unit": "UTF8_CHAR"}, dtypes=[],
             numpy=known(np.int32([3, 3, 0])), name="characters"),
    ],
    "StringLower": strings(lambda x: x.lower()),
    "StringUpper": strings(lambda x: x.upper()),
    "StringStrip": strings(lambda x: x.strip(WHITE)),
    "RegexReplace": [
        *strings(lambda x: re.sub(b"[a-c]+", b"<>", x), {"pattern": "[a-c]+", "rewrite": "<>"}),
        Case(given(["x1y22", "333"]), {"pattern": "([0-9])([0-9])", "rewrite": r"\2\1_\0",
             "replace_global": False}, dtypes=[], numpy=known(text(["x1y22_22", "33_333"])),
             name="groups"),
    ],
    "RegexFullMatch": strings(lambda x: re.fullmatch(b"[A-Za-z]*", x) is not None,
                              {"pattern": "[A-Za-z]*"}, bool),
    "DecodeRaw": DECODE_RAW,
    "EncodeRaw": ENCODE_RAW,
    "DecodeCsv": DECODE_CSV,
    "ParseExample": PARSE_EXAMPLE,
}  # fmt: skip
