"""An ONNX model in the making, and what rules of ops see of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, Protocol

import numpy as np

from . import _native, errors
from ._sites import add_line
from .dtypes import as_dtype, bfloat16, float32, name_of
from .ops import cast

#: What makes ONNX nodes of an op; gets and gives names of values.
Rule = Callable[["Op"], "str | Sequence[str]"]
#: Adds what outputs of a function need to nodes; see sidereal.onnx.lower().
Lower = Callable[["Nodes", Any, Mapping[Any, str], Sequence[tuple[int, int]], str], list[str]]


def onnx_modules() -> Any:
    try:
        # ruff: noqa: PLC0415 - programs that export nothing need neither package.
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise errors.UnavailableError(
            "the export needs the package onnx, which is not installed: pip install onnx"
        ) from error
    return onnx


#: A file without external data has so many bytes at most: what protobuf can write.
_MAX_FILE_BYTES = 1_900_000_000
#: Smaller values stay in the model: runtimes want to see shapes there.
_MIN_EXTERNAL_BYTES = 1024
#: Where values begin in a file of their own, so that it can be mapped.
_ALIGNMENT = 4096


class Opens(Protocol):
    """Opens a file when there is something to write to it."""

    def __call__(self) -> BinaryIO: ...


class ExternalData:
    """The file beside a model that has its large values.

    name: as the model calls it. limit: values of so many bytes, and more, are in it.
    """

    def __init__(self, name: str, limit: int, opens: Opens) -> None:
        self.name, self.limit = name, limit
        self._opens = opens
        self._file: BinaryIO | None = None
        self._end = 0

    @property
    def is_used(self) -> bool:
        """Whether the model needs the file."""
        return self._file is not None

    def add(self, array: np.ndarray) -> list[tuple[str, str]]:
        """Writes a value; where it is, as ONNX says it."""
        if self._file is None:
            self._file = self._opens()
        self._file.write(bytes(-self._end % _ALIGNMENT))
        begin = self._end + -self._end % _ALIGNMENT
        # Not of the array: extension types, as bfloat16, are no buffers.
        elements: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._file.write(memoryview(elements))
        self._end = begin + array.nbytes
        return [("location", self.name), ("offset", str(begin)), ("length", str(array.nbytes))]


class Model:
    """The ONNX model being made: initializers and names, which all of its graphs share."""

    def __init__(self, opset: int, lower: Lower, external: ExternalData) -> None:
        self.onnx = onnx_modules()
        self.external = external
        self.lower = lower
        self.opset = opset
        self.initializers: list[Any] = []
        self.bytes = 0
        #: Values of constants by the name they have in the model.
        self.constants: dict[str, np.ndarray] = {}
        self._names: set[str] = set()
        self._known: dict[Any, str] = {}
        self._types: dict[str, list[set[str]]] = {}

    def name(self, wanted: str) -> str:
        """`wanted`, or something like it that is not yet used."""
        made, number = wanted, 0
        while made in self._names or not made:
            number += 1
            made = f"{wanted}_{number}"
        self._names.add(made)
        return made

    def dtype(self, dtype: Any) -> int:
        """ONNX's number of a dtype."""
        name = {"float32": "FLOAT", "float64": "DOUBLE"}.get(name_of(dtype), name_of(dtype).upper())
        return getattr(self.onnx.TensorProto, name)

    def types_of(self, op: str) -> list[set[str]]:
        """The types that each input of an operator may have."""
        if op not in self._types:
            schema = self.onnx.defs.get_schema(op, self.opset)
            self._types[op] = [set(parameter.types) for parameter in schema.inputs]
        return self._types[op]

    def initializer(self, name: str, array: np.ndarray) -> str:
        """A value of the model."""
        made = self.name(name)
        is_large = (
            array.nbytes >= self.external.limit or self.bytes + array.nbytes > _MAX_FILE_BYTES
        )
        if array.dtype == object or not is_large or array.nbytes < _MIN_EXTERNAL_BYTES:
            self.initializers.append(self.onnx.numpy_helper.from_array(array, made))
            self.bytes += array.nbytes
            return made
        proto = self.onnx.TensorProto(
            name=made, dims=array.shape, data_location=self.onnx.TensorProto.EXTERNAL,
            data_type=self.onnx.helper.np_dtype_to_tensor_dtype(array.dtype),
        )  # fmt: skip
        for key, value in self.external.add(array):
            proto.external_data.add(key=key, value=value)
        self.initializers.append(proto)
        return made

    def constant(self, value: Any, dtype: Any) -> str:
        """A constant; equal ones are one."""
        array = np.ascontiguousarray(value, dtype=numpy_dtype(dtype)).reshape(np.shape(value))
        key = (array.dtype.str, name_of(dtype), array.shape, array.tobytes())
        if array.dtype == object:
            key = (*key[:3], tuple(array.flat))
        if key not in self._known:
            made = self.initializer("const", array)
            self._known[key] = made
            self.constants[made] = array
        return self._known[key]

    def value_info(self, name: str, dtype: Any, shape: Any, batch: str | None = None) -> Any:
        """The description of an input or output."""
        dims: Any = None
        if shape is not None:
            dims = [
                extent if extent >= 0 else (batch if i == 0 and batch else f"{name}_dim_{i}")
                for i, extent in enumerate(shape)
            ]
        return self.onnx.helper.make_tensor_value_info(name, self.dtype(dtype), dims)


def numpy_dtype(dtype: Any) -> Any:
    if as_dtype(dtype) is bfloat16:
        import ml_dtypes

        return ml_dtypes.bfloat16
    kind: Any = as_dtype(dtype)
    return object if name_of(dtype) == "string" else np.dtype(kind)


def _type_name(dtype: Any) -> str:
    """As ONNX's schemas call a dtype."""
    return {"float32": "float", "float64": "double"}.get(name_of(dtype), name_of(dtype))


def array_of(tensor: Any) -> np.ndarray:
    """A tensor's elements as ONNX's package takes them."""
    if as_dtype(tensor.dtype) is bfloat16:
        return cast(tensor, float32).numpy().astype(numpy_dtype(bfloat16))
    return tensor.numpy()


class Nodes:
    """The nodes of one ONNX graph in the making: the model's own, or a body."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.made: list[Any] = []

    def emit(
        self, op: str, inputs: Sequence[str], outputs: int, hint: str, attrs: Any
    ) -> list[str]:
        """Adds a node; the names of its outputs."""
        names = [self.model.name(hint) for _ in range(outputs)]
        self.made.append(
            self.model.onnx.helper.make_node(op, list(inputs), names, name=names[0], **attrs)
        )
        return names

    def graph(
        self, name: str, inputs: Sequence[Any], outputs: Sequence[tuple[str, Any, Any]]
    ) -> Any:
        """The finished graph, for an attribute of a node. Its outputs are values of its own."""
        infos = []
        for value, dtype, shape in outputs:
            (own,) = self.emit("Identity", [value], 1, f"{name}_out", {})
            infos.append(self.model.value_info(own, dtype, shape))
        return self.model.onnx.helper.make_graph(self.made, self.model.name(name), inputs, infos)


class Op:
    """One node of a function while it is exported, as rules see it."""

    def __init__(
        self,
        nodes: Nodes,
        holder: Any,
        node: tuple[Any, ...],
        inputs: list[str],
        specs: list[tuple[Any, Any]],
        site: str,
    ) -> None:
        self.nodes = nodes
        self.model = nodes.model
        self.holder = holder
        self.name, self.op, _, self.attrs, self.outputs = node
        self.inputs = inputs
        self.specs = specs
        self.site = site

    def emit(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Adds a node of one output; its name."""
        return self.emit_many(op, 1, *inputs, **attrs)[0]

    def emit_many(self, op: str, count: int, *inputs: str, **attrs: Any) -> list[str]:
        """Adds a node of several outputs; their names."""
        takes = self.model.types_of(op)
        for i, value in enumerate(inputs):
            if value not in self.inputs:
                continue
            dtype = self.specs[self.inputs.index(value)][0]
            allowed = takes[min(i, len(takes) - 1)]
            if allowed and f"tensor({_type_name(dtype)})" not in allowed:
                self.fail(f"ONNX's {op} does not take {name_of(dtype)}; cast to float32 or int32")
        return self.nodes.emit(op, inputs, count, self.name, attrs)

    def ints(self, values: Any) -> str:
        """A constant of int64."""
        return self.model.constant(np.asarray(values, np.int64), "int64")

    def number(self, value: Any, like: int = 0) -> str:
        """A scalar constant of the dtype of an input."""
        return self.model.constant(np.asarray(value), self.specs[like][0])

    def constant(self, i: int) -> np.ndarray | None:
        """The value of an input when it is a constant."""
        return self.model.constants.get(self.inputs[i])

    def cast(self, value: str, dtype: Any) -> str:
        return self.emit("Cast", value, to=self.model.dtype(dtype))

    def rank(self, i: int = 0) -> int:
        """The number of dimensions of an input."""
        shape = self.specs[i][1]
        if shape is None:
            self.fail("the number of dimensions of its input is not known; use ensure_shape()")
        return len(shape)

    def axis(self, name: str = "axis", rank: int | None = None, default: int = 0) -> int:
        """An attribute that names a dimension, counted from the front."""
        axis = self.attrs.get(name, default)
        return axis if axis >= 0 else axis + (self.rank() if rank is None else rank)

    def ints_of(self, name: str, i: int) -> str:
        """Integers that are an attribute or an input, as int64."""
        if name in self.attrs:
            value = self.attrs[name]
            return self.ints(value)
        known = self.constant(i)
        if known is not None:
            return self.ints(known)
        return self.cast(self.inputs[i], "int64")

    def known_ints(self, name: str, i: int, what: str) -> list[int]:
        """As ints_of(), when they must be known."""
        if name in self.attrs:
            return [int(value) for value in self.attrs[name]]
        known = self.constant(i) if i < len(self.inputs) else None
        if known is None:
            self.fail(f"{what} is computed; ONNX needs it as a constant")
        return [int(value) for value in np.asarray(known).reshape(-1)]

    def fail(self, why: str) -> Any:
        """Says that this node cannot be exported."""
        error = errors.UnimplementedError(
            f"{self.op} '{self.name}' cannot be exported to ONNX: {why}"
        )
        add_line(error, self.site)
        raise error

    # ---- functions in a graph --------------------------------------------------------------------

    def body(self, attr: str) -> Any:
        """The function that an attribute names."""
        return _native.body_of(self.holder, self.attrs[attr])

    def run(self, nodes: Nodes, body: Any, arguments: Sequence[str]) -> list[str]:
        """Adds what a function does to `nodes`; the names of its results."""
        results = _native.outputs_of(body)
        return self.model.lower(nodes, body, dict(enumerate(arguments)), results, self.site)

    def bodies(self) -> Nodes:
        """A graph of its own for a body."""
        return Nodes(self.model)

    def result_specs(self, body: Any) -> list[tuple[Any, Any]]:
        """Dtype and shape of each value that a function returns."""
        nodes = _native.nodes_of(body)
        return [nodes[node][4][index] for node, index in _native.outputs_of(body)]
