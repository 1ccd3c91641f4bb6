"""What Tensor and Output have in common, and what tensors can besides. Importing this module puts
the methods on the classes of the extension."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import errors, ops
from ._dispatch import apply, binary, to_tensor
from ._native import Output, Tensor
from ._sites import add_line
from .device_spec import HERE

#: What operators give back to Python, which then tries the other operand or raises TypeError.
_NO_NUMBERS = (str, bytes, dict, set, type(None))


@functools.cache
def _function(name: str) -> Callable[..., Any]:
    """The public function of that name."""
    for module in (ops.math, ops.array, ops.control, ops.basic):
        found: Callable[..., Any] | None = getattr(module, name, None)
        if found is not None:
            return found
    raise errors.UnimplementedError(f"this release has no op for the operator '{name}'")


def _no_operand(self: Any, other: Any) -> bool:
    """Whether the operator is not for `other`, one of _NO_NUMBERS: text goes with strings only."""
    return not isinstance(other, (str, bytes)) or self.dtype.name != "string"


def _binary_method(call: Callable[[Any, Any], Any], reflected: bool = False) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if isinstance(other, _NO_NUMBERS) and _no_operand(self, other):
            return NotImplemented
        return call(other, self) if reflected else call(self, other)

    return method


def _op(name: str) -> Callable[[Any, Any], Any]:
    return lambda x, y: binary(name, x, y)


def _named(name: str) -> Callable[[Any, Any], Any]:
    return lambda x, y: _function(name)(x, y)


def _logic(name: str) -> Callable[[Any, Any], Any]:
    """Of bools the logical op, of integers the one by bits."""

    def call(x: Any, y: Any) -> Any:
        tensor = x if hasattr(x, "dtype") else y
        kind = "logical" if tensor.dtype.kind == "b" else "bitwise"
        return _function(f"{kind}_{name}")(x, y)

    return call


def _invert(self: Any) -> Any:
    return _function("logical_not" if self.dtype.kind == "b" else "invert")(self)


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": _op("Add"),
    "sub": _op("Sub"),
    "mul": _op("Mul"),
    "truediv": _named("divide"),
    "floordiv": _named("floordiv"),
    "mod": _named("floormod"),
    "pow": _named("pow"),
    "matmul": _named("matmul"),
    "and": _logic("and"),
    "or": _logic("or"),
    "xor": _logic("xor"),
}
_COMPARISONS = {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}


def _equality(name: str) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if isinstance(other, _NO_NUMBERS) and _no_operand(self, other):
            return NotImplemented
        return _function(name)(self, other)

    return method


def _getitem(self: Any, key: Any) -> Any:
    return _function("getitem")(self, key)


def _iterate(self: Tensor) -> Iterator[Tensor]:
    if self.ndim == 0:
        raise TypeError("a scalar tensor cannot be iterated over")
    return (self[i] for i in range(self.shape[0]))


class Reference:
    """A tensor as a key of dicts and sets, by identity: tensors themselves compare by element."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def deref(self) -> Any:
        """The tensor."""
        return self._tensor

    def _key(self) -> object:
        tensor = self._tensor
        if type(tensor) is Tensor:
            return tensor.id
        if type(tensor) is Output:
            return (id(tensor.graph), tensor.node, tensor.index)
        return id(tensor)

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and self._key() == other._key()


def install_shared(cls: type) -> None:
    """Operators, for tensors and what stands for them."""
    for name, call in _ARITHMETIC.items():
        setattr(cls, f"__{name}__", _binary_method(call))
        setattr(cls, f"__r{name}__", _binary_method(call, reflected=True))
    for name, function in _COMPARISONS.items():
        setattr(cls, f"__{name}__", _equality(function))
    setattr(cls, "__hash__", _no_hash)
    setattr(cls, "__neg__", lambda self: apply("Neg", (self,)))
    setattr(cls, "__pos__", lambda self: self)
    setattr(cls, "__abs__", lambda self: apply("Abs", (self,)))
    setattr(cls, "__invert__", _invert)
    if not hasattr(cls, "__getitem__"):
        setattr(cls, "__getitem__", _getitem)
    # NumPy arrays on the left leave the operation to these classes.
    setattr(cls, "__array_priority__", 100)
    if not hasattr(cls, "ref"):
        setattr(cls, "ref", lambda self: Reference(self))


def _no_hash(self: Any) -> int:
    raise TypeError("tensors compare by element and cannot be keys; use x.ref()")


def _array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    array = self.numpy()
    if dtype is not None and array.dtype != dtype:
        if copy is False:
            raise ValueError(f"a {array.dtype} tensor cannot be a {np.dtype(dtype)} array uncopied")
        return array.astype(dtype)
    return array.copy() if copy else array


def _scalar(self: Tensor) -> Any:
    if self.size != 1:
        raise errors.InvalidArgumentError(
            f"a tensor of shape {self.shape} is no single number; reduce it or take an element"
        )
    return self.numpy().item() if self.dtype.name != "bfloat16" else float(_widened(self).numpy())


def _widened(self: Tensor) -> Tensor:
    return apply("Cast", (self,), {"dtype": "float32"})


def _bool(self: Tensor) -> bool:
    if self.size != 1:
        raise errors.InvalidArgumentError(
            f"the truth of a tensor of shape {self.shape} is not one value; use "
            "sidereal.reduce_any() or sidereal.reduce_all()"
        )
    return bool(_scalar(self))


def _index(self: Tensor) -> int:
    if self.dtype.kind not in "iu" or self.ndim != 0:
        raise TypeError("only integer scalar tensors can be an index")
    return int(_scalar(self))


def _len(self: Tensor) -> int:
    if self.ndim == 0:
        raise TypeError("a scalar tensor has no length")
    return self.shape[0]


def _repr(self: Tensor) -> str:
    name = getattr(self.dtype, "name", str(self.dtype))
    array = (_widened(self) if name == "bfloat16" else self).numpy()
    return (
        f"<Tensor: shape={self.shape}, dtype={name},"
        f" numpy={np.array2string(array, separator=', ')}>"
    )


def _format(self: Tensor, spec: str) -> str:
    return format(_scalar(self), spec) if spec else str(self)


def _str(self: Tensor) -> str:
    return repr(self) if self.size != 1 or self.ndim else str(_scalar(self))


def _set_shape(self: Any, shape: Any) -> None:
    """Nothing: shapes are known as well as they can be. ValueError when it cannot have that one."""
    if self.shape is not None and not self.shape.is_compatible_with(shape):
        raise ValueError(f"a tensor of shape {self.shape} cannot have the shape {tuple(shape)}")


def _install_tensor() -> None:
    methods: dict[str, Any] = {
        "__array__": _array,
        "device": HERE,
        "item": _scalar,
        "tolist": lambda self: self.numpy().tolist(),
        "__bool__": _bool,
        "__int__": lambda self: int(_scalar(self)),
        "__float__": lambda self: float(_scalar(self)),
        "__index__": _index,
        "__len__": _len,
        "__iter__": _iterate,
        "__repr__": _repr,
        "__str__": _str,
        "__format__": _format,
        "__reduce__": lambda self: (_restored, (np.asarray(self),)),
        "__copy__": lambda self: self,
        "__deepcopy__": lambda self, memo: self,
    }
    for name, method in methods.items():
        setattr(Tensor, name, method)


def _restored(array: np.ndarray) -> Tensor:
    return to_tensor(array)


def _symbolic(what: str, instead: str) -> Callable[..., Any]:
    def method(self: Output, *args: Any) -> Any:
        error = errors.SymbolicError(
            f"{self.op_type} '{self.node_name}' is a value of a graph that is being built, and has "
            f"no {what} yet; {instead}"
        )
        add_line(error)
        raise error

    return method


def _output_len(self: Output) -> int:
    shape = self.shape
    if shape is not None and shape and shape[0] >= 0:
        return shape[0]
    return _symbolic("length", "use sidereal.shape(x)[0]")(self)


def _output_iterate(self: Output) -> Iterator[Any]:
    shape = self.shape
    if shape is None or not shape or shape[0] < 0:
        return _symbolic(
            "known extent to iterate over",
            "use sidereal.map_fn, sidereal.scan or sidereal.while_loop",
        )(self)
    return (self[i] for i in range(shape[0]))


def _install_output() -> None:
    number = "use it in ops, or return it from the function and look at it outside"
    methods: dict[str, Any] = {
        "ndim": property(lambda self: None if self.shape is None else len(self.shape)),
        "__bool__": _symbolic(
            "truth value: Python's if, while, and, or and not cannot depend on it",
            "use sidereal.cond(pred, true_fn, false_fn), sidereal.where(pred, x, y) or "
            "sidereal.while_loop(cond, body, loop_vars), or the logical ops for and, or, not",
        ),
        "__int__": _symbolic("number", number),
        "__float__": _symbolic("number", number),
        "__index__": _symbolic(
            "number: it cannot be an index or a range of Python",
            "use sidereal.gather or slices of tensors, sidereal.range, or sidereal.while_loop",
        ),
        "item": _symbolic("number", number),
        "numpy": _symbolic("array", number),
        "__array__": _symbolic(
            "array: NumPy functions cannot take it", "use the functions of sidereal instead"
        ),
        # Found again in dicts (of feeds) when it is the same object; == makes a value of the graph.
        "__hash__": lambda self: hash((self.node, self.index)),
        "__len__": _output_len,
        "__iter__": _output_iterate,
    }
    for name, method in methods.items():
        setattr(Output, name, method)


for _class in (Tensor, Output):
    install_shared(_class)
    setattr(_class, "get_shape", lambda self: self.shape)
    setattr(_class, "set_shape", _set_shape)
_install_tensor()
_install_output()
