"""Functions and variables as files (tf.saved_model).

    sidereal.saved_model.save(model, "model.srsm")
    again = sidereal.saved_model.load("model.srsm")
    again.predict(x)

What is saved are the traces of every sidereal.function that is found, with the variables and
tensors they use; the Python code is not. The format is in docs/formats/saved_model.md.
"""

from __future__ import annotations

import json
import os
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from . import _native, errors, nest
from ._dispatch import ENGINE, convert
from ._files import written_whole
from ._graphs import FuncGraph
from ._native import Output, Tensor
from ._structures import read, read_in_order, write
from .dtypes import as_dtype, name_of
from .function import ConcreteFunction, Function, TensorSpec, by_place
from .indexed_slices import IndexedSlices
from .variable import Variable

#: The signature that serving asks for when it is told no other.
DEFAULT_SERVING_SIGNATURE_DEF_KEY = "serving_default"

_PLAIN = (bool, int, float, str, type(None))
_LEAVES = (types.ModuleType, type, types.FunctionType, types.MethodType, types.BuiltinFunctionType)


# ---- structures ----------------------------------------------------------------------------------


def _write_argument(leaf: Any) -> Any:
    if isinstance(leaf, TensorSpec):
        shape = None if leaf.shape is None else list(leaf.shape)
        return {"tensor": [name_of(leaf.dtype), shape, leaf.name]}
    if isinstance(leaf, _PLAIN):
        return {"value": leaf}
    raise TypeError(f"it was traced for an argument {leaf!r}, which is neither tensor nor number")


def _read_argument(written: Any) -> Any:
    if "tensor" in written:
        dtype, shape, name = written["tensor"]
        return TensorSpec(shape, as_dtype(dtype), name)
    return written["value"]


def _write_result(leaf: Any) -> Any:
    if leaf is None:
        return {"value": None}
    if isinstance(leaf, IndexedSlices):
        shape = leaf.dense_shape
        return {"rows": None if shape is None else list(shape)}
    return {"tensor": None}


# ---- saving --------------------------------------------------------------------------------------


class _Writer:
    """Collects what an object holds, each thing once."""

    def __init__(self) -> None:
        self.model = _native.SavedModel()
        self.nodes: list[dict[str, Any]] = []
        self._nodes_of: dict[int, int | None] = {}
        self._values: dict[object, int] = {}
        self._functions: dict[int, int] = {}
        self._held: list[Any] = []  # So that no id is given to another object meanwhile.
        self.functions: list[Any] = []

    def value(self, value: Tensor | Variable) -> int:
        """The number of a variable or tensor."""
        key = id(value) if isinstance(value, Variable) else ("tensor", value.id)
        if key not in self._values:
            self._held.append(value)
            if isinstance(value, Variable):
                made = self.model.add_value(value.name, True, value.trainable, value._present())
            else:
                made = self.model.add_value("", False, False, value)
            self._values[key] = made
        return self._values[key]

    def concrete(self, function: ConcreteFunction) -> int:
        """The number of a trace."""
        if id(function) in self._functions:
            return self._functions[id(function)]
        try:
            arguments = write(function.arguments, _write_argument)
            result = write(function._result, _write_result)
        except TypeError as error:
            raise errors.InvalidArgumentError(
                f"function '{function.name}' cannot be saved: {error}"
            ) from None
        made = self.model.add_function(
            function.graph.native,
            function.name,
            json.dumps({"arguments": arguments, "result": result}),
            function.graph.inputs,
            [self.value(value) for value, _ in function.graph.captures],
            function.outputs,
            [self.value(variable) for variable in function._assigned],
        )
        self._held.append(function)
        self._functions[id(function)] = made
        return made

    def _add(self, thing: Any, node: dict[str, Any]) -> int:
        self._held.append(thing)
        self.nodes.append(node)
        self._nodes_of[id(thing)] = len(self.nodes) - 1
        return len(self.nodes) - 1

    def thing(self, thing: Any) -> int | None:
        """The number of what describes an object; None when there is nothing to save in it."""
        if isinstance(thing, (*_PLAIN, *_LEAVES)):
            return None
        if id(thing) in self._nodes_of:
            return self._nodes_of[id(thing)]
        if isinstance(thing, Variable):
            return self._add(thing, {"kind": "variable", "value": self.value(thing)})
        if isinstance(thing, Tensor):
            return self._add(thing, {"kind": "tensor", "value": self.value(thing)})
        if isinstance(thing, (Function, ConcreteFunction, RestoredFunction)):
            return self._function(thing)
        if isinstance(thing, Mapping):
            items = [(key, thing[key]) for key in thing if isinstance(key, str)]
            return self._group(thing, "dict", items)
        if isinstance(thing, (list, tuple)):
            kind = "list" if isinstance(thing, list) else "tuple"
            return self._group(thing, kind, list(enumerate(thing)))
        if hasattr(thing, "__dict__"):
            return self._group(thing, "object", _members(thing))
        return None

    def _group(self, thing: Any, kind: str, members: Sequence[tuple[Any, Any]]) -> int | None:
        node: dict[str, Any] = {"kind": kind, "items": []}
        number = self._add(thing, node)
        found = [(key, self.thing(member)) for key, member in members]
        if kind in ("list", "tuple") and any(made is not None for _, made in found):
            # Places count: what cannot be saved leaves a None.
            node["items"] = [[key, made] for key, made in found]
        else:
            node["items"] = [[key, made] for key, made in found if made is not None]
        if not node["items"]:
            self._nodes_of[id(thing)] = None
            return None
        return number

    def _function(self, function: Function | ConcreteFunction | RestoredFunction) -> int | None:
        traces, parameters = _traces(function)
        if not traces:
            name = getattr(function, "__name__", "function")
            warnings.warn(
                f"function '{name}' is not saved: it has not been traced; call it, or give it an "
                "input_signature",
                stacklevel=2,
            )
            return None
        self.functions.append(function)
        return self._add(
            function,
            {
                "kind": "function",
                "name": traces[0].name,
                "parameters": parameters,
                "traces": [self.concrete(trace) for trace in traces],
            },
        )


def _traces(
    function: Function | ConcreteFunction | RestoredFunction,
) -> tuple[list[ConcreteFunction], Any]:
    """Traces, and the parameters [name, default] when arguments can be told by name."""
    if isinstance(function, ConcreteFunction):
        return [function], None
    if isinstance(function, RestoredFunction):
        return function.concrete_functions, function._parameters
    if function.input_signature is not None and not function._traces:
        function.get_concrete_function()
    parameters = None
    signature = function._signature
    if signature is not None and all(
        p.kind is p.POSITIONAL_OR_KEYWORD
        and (p.default is p.empty or isinstance(p.default, _PLAIN))
        for p in signature.parameters.values()
    ):
        parameters = [
            [p.name, None if p.default is p.empty else [p.default]]
            for p in signature.parameters.values()
        ]
    return list(function._traces.values()), parameters


def _members(thing: Any) -> list[tuple[str, Any]]:
    """Attributes of an object, and the functions its class defines."""
    members = {
        name: getattr(thing, name)
        for kind in type(thing).__mro__
        for name, member in vars(kind).items()
        if isinstance(member, Function)
    }
    members.update(vars(thing))
    return list(members.items())


def _paths(structure: Any, path: str = "") -> list[tuple[str, Any]]:
    """The leaves, each with its place, such as "features_age"."""
    joined = path + "_" if path else ""
    if isinstance(structure, Mapping):
        pairs = [(str(key), structure[key]) for key in sorted(structure)]
    elif isinstance(structure, (list, tuple)):
        names = getattr(structure, "_fields", range(len(structure)))
        pairs = [(str(name), item) for name, item in zip(names, structure)]
    else:
        return [(path, structure)]
    return [leaf for name, item in pairs for leaf in _paths(item, joined + name)]


def _unique(names: Sequence[str]) -> list[str]:
    seen: set[str] = set()
    out = []
    for name in names:
        made, number = name, 1
        while made in seen:
            made, number = f"{name}_{number}", number + 1
        seen.add(made)
        out.append(made)
    return out


def _input_names(concrete: ConcreteFunction, parameters: Any) -> list[str]:
    args, kwargs = concrete.arguments
    known = [name for name, _ in parameters or []]
    named = [
        (known[i] if i < len(known) else f"x{i}", argument) for i, argument in enumerate(args)
    ]
    leaves = [leaf for name, arg in (*named, *kwargs.items()) for leaf in _paths(arg, name)]
    return _unique([leaf.name or path for path, leaf in leaves if isinstance(leaf, TensorSpec)])


def _output_names(concrete: ConcreteFunction) -> list[str]:
    result = concrete._result
    if isinstance(result, Mapping):
        names = []
        for path, leaf in _paths(result):
            if isinstance(leaf, IndexedSlices):
                names += [path + "_values", path + "_indices"]
            elif leaf is not None:
                names.append(path)
        return _unique(names)
    return [f"output_{i}" for i in range(concrete._count)]


def _signatures(writer: _Writer, signatures: Any) -> None:
    if signatures is None:
        # One function with one trace can only be what is to be served.
        if len(writer.functions) == 1 and len(_traces(writer.functions[0])[0]) == 1:
            signatures = {DEFAULT_SERVING_SIGNATURE_DEF_KEY: writer.functions[0]}
    elif not isinstance(signatures, Mapping):
        signatures = {DEFAULT_SERVING_SIGNATURE_DEF_KEY: signatures}
    for name, function in (signatures or {}).items():
        if not isinstance(function, (Function, ConcreteFunction, RestoredFunction)):
            raise TypeError(f"signature '{name}' is {function!r}, which is no sidereal.function")
        traces, parameters = _traces(function)
        if len(traces) != 1:
            raise errors.InvalidArgumentError(
                f"signature '{name}': the function has {len(traces)} traces; give it an "
                "input_signature, or give one trace: f.get_concrete_function(...)"
            )
        writer.model.add_signature(
            name,
            writer.concrete(traces[0]),
            _input_names(traces[0], parameters),
            _output_names(traces[0]),
        )


def save(obj: Any, export_dir: str | os.PathLike[str], signatures: Any = None) -> None:
    """Saves the functions and variables that `obj` holds to one file (tf.saved_model.save).

    obj: a sidereal.function or one trace of it, or any object, dict or list: what is saved are the
        functions, variables and tensors among its attributes and what these hold.
    export_dir: the file to write. It is written whole or not at all.
    signatures: a function with one trace, or a dict of such by name. By default the only function
        there is, as "serving_default".

    The traces that a function has are saved; one without any is left out with a warning. Arguments
    that are no tensors must be numbers, strings or None. Errors: InvalidArgumentError, and
    NotFoundError when there is no such folder.
    """
    with written_whole(Path(export_dir)) as file:
        file.write(_encoded(obj, signatures))


def _encoded(obj: Any, signatures: Any) -> bytes:
    """The bytes of the file of an object."""
    writer = _Writer()
    if isinstance(obj, (Function, ConcreteFunction, RestoredFunction)):
        made = writer._function(obj)
        root = {"kind": "object", "items": [] if made is None else [["__call__", made]]}
        writer.nodes.append(root)
        number = len(writer.nodes) - 1
    else:
        found = writer.thing(obj)
        if found is None:
            name = type(obj).__name__
            advice = (
                f"; {name}.export(path) saves what it predicts" if hasattr(obj, "export") else ""
            )
            raise errors.InvalidArgumentError(
                f"there is nothing to save in {name}: it holds no sidereal.function with a trace, "
                f"no variable and no tensor{advice}"
            )
        number = found
    _signatures(writer, signatures)
    writer.model.producer = f"sidereal {_native.__version__}"
    writer.model.objects = json.dumps({"root": number, "nodes": writer.nodes})
    return writer.model.encode(ENGINE)


# ---- loading -------------------------------------------------------------------------------------


class RestoredFunction:
    """A sidereal.function that was loaded: the traces it had when it was saved."""

    def __init__(self, name: str, parameters: Any, traces: list[ConcreteFunction]) -> None:
        self.__name__ = self._name = name
        self._parameters = parameters
        self.concrete_functions = traces

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        concrete, tensors = self._find(args, kwargs)
        return concrete.call(tensors)

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """The trace for tensors, or TensorSpecs, like these; without any, the only one."""
        if not args and not kwargs and len(self.concrete_functions) == 1:
            return self.concrete_functions[0]
        return self._find(args, kwargs)[0]

    def _find(self, args: Any, kwargs: Any) -> tuple[ConcreteFunction, list[Any]]:
        args, kwargs = self._bind(args, kwargs)
        for concrete in self.concrete_functions:
            tensors: list[Any] = []
            by_position, by_name = by_place(concrete.arguments, args, kwargs)
            if _matches(concrete.arguments[0], by_position, tensors) and _matches(
                concrete.arguments[1], by_name, tensors
            ):
                return concrete, tensors
        raise errors.InvalidArgumentError(
            f"{self._name}() was saved without a trace for these arguments; it takes "
            + "; or ".join(_picture(concrete) for concrete in self.concrete_functions)
        )

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if self._parameters is None:
            return args, kwargs
        rest = dict(kwargs)
        bound = list(args)
        for name, default in self._parameters[len(args) :]:
            if name in rest:
                bound.append(rest.pop(name))
            elif default is not None:
                bound.append(default[0])
            else:
                raise TypeError(f"{self._name}() misses its argument '{name}'")
        if rest:
            raise TypeError(f"{self._name}() has no argument '{next(iter(rest))}'")
        return tuple(bound), {}

    def __repr__(self) -> str:
        return f"<sidereal.function {self._name}, loaded>"


def _picture(concrete: ConcreteFunction) -> str:
    args, kwargs = concrete.arguments
    return ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())])


def _matches(known: Any, given: Any, tensors: list[Any]) -> bool:
    """Whether `given` fits what a trace was made for; its tensors are added to `tensors`."""
    if isinstance(known, TensorSpec):
        if isinstance(given, TensorSpec):
            tensors.append(given)
            return known.accepts(given)
        try:
            is_tensor = isinstance(given, (Tensor, Output))
            value = convert(given, None if is_tensor else known.dtype)
        except (TypeError, ValueError, errors.Error):
            return False
        tensors.append(value)
        return known.accepts(value)
    if isinstance(known, Mapping):
        return (
            isinstance(given, Mapping)
            and set(known) == set(given)
            and all(_matches(known[key], given[key], tensors) for key in sorted(known))
        )
    if isinstance(known, (list, tuple)):
        return (
            isinstance(given, (list, tuple))
            and len(known) == len(given)
            and all(_matches(k, g, tensors) for k, g in zip(known, given))
        )
    return type(known) is type(given) and known == given


class SignatureFunction:
    """A function under a signature's name: takes tensors by name, gives a dict of them."""

    def __init__(
        self, name: str, concrete: ConcreteFunction, inputs: list[str], outputs: list[str]
    ) -> None:
        self.name = name
        self.concrete_function = concrete
        specs = [leaf for leaf in nest.flatten(concrete.arguments) if isinstance(leaf, TensorSpec)]
        #: TensorSpecs by name.
        self.inputs = {
            key: TensorSpec(spec.shape, spec.dtype, key) for key, spec in zip(inputs, specs)
        }
        self.outputs = {
            key: TensorSpec(value.shape, value.dtype, key)
            for key, value in zip(outputs, concrete.outputs)
        }

    @property
    def structured_input_signature(self) -> tuple[tuple[()], dict[str, TensorSpec]]:
        return (), dict(self.inputs)

    @property
    def structured_outputs(self) -> dict[str, TensorSpec]:
        return dict(self.outputs)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        given = dict(zip(self.inputs, args), **kwargs)
        if len(args) + len(kwargs) != len(self.inputs) or set(given) != set(self.inputs):
            raise TypeError(
                f"signature '{self.name}' takes {', '.join(self.inputs) or 'nothing'}; "
                f"given are {len(args)} by place and by name {', '.join(kwargs) or 'none'}"
            )
        tensors: list[Any] = []
        for key, spec in self.inputs.items():
            if not _matches(spec, given[key], tensors):
                raise errors.InvalidArgumentError(
                    f"signature '{self.name}' takes {spec!r} for '{key}'"
                )
        leaves = [
            leaf for leaf in nest.flatten(self.concrete_function.call(tensors)) if leaf is not None
        ]
        flat: list[Any] = []
        for leaf in leaves:
            rows = isinstance(leaf, IndexedSlices)
            flat += [leaf.values, leaf.indices] if rows else [leaf]
        return dict(zip(self.outputs, flat))

    def __repr__(self) -> str:
        return f"<signature {self.name}({', '.join(self.inputs)})>"


class Loaded:
    """An object that was loaded, with the attributes that were saved."""

    signatures: dict[str, SignatureFunction]
    variables: list[Variable]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = vars(self).get("__call__")
        if function is None:
            raise TypeError("what was saved could not be called; call one of its functions")
        return function(*args, **kwargs)

    def __repr__(self) -> str:
        names = ", ".join(name for name in vars(self) if not name.startswith("_"))
        return f"<loaded object with {names}>"


class _Reader:
    """Makes objects of what was saved."""

    def __init__(self, model: _native.SavedModel) -> None:
        self._values: list[Any] = [
            Variable(value, trainable, name) if variable else value
            for name, variable, trainable, value in model.values(ENGINE)
        ]
        self._functions = [self._concrete(*f) for f in model.functions(ENGINE)]
        tree = json.loads(model.objects)
        self._nodes = tree["nodes"]
        self._made: dict[int, Any] = {}
        self.root = self._thing(tree["root"])
        signatures = {
            name: SignatureFunction(name, self._functions[function], inputs, outputs)
            for name, function, inputs, outputs in model.signatures()
        }
        if not isinstance(self.root, Loaded):
            root = Loaded()
            if isinstance(self.root, dict):
                vars(root).update(self.root)
            else:
                root.root = self.root  # type: ignore[attr-defined]
            self.root = root
        vars(self.root).setdefault("signatures", signatures)
        variables = [value for value in self._values if isinstance(value, Variable)]
        vars(self.root).setdefault("variables", variables)

    def _concrete(
        self,
        name: str,
        structure: str,
        native: _native.Graph,
        inputs: list[Output],
        captures: list[int],
        outputs: list[Output],
        assigned: list[int],
    ) -> ConcreteFunction:
        written = json.loads(structure)
        graph = FuncGraph(name, native=native)
        graph.outer = None
        count = len(inputs) - len(captures)
        graph.arguments = inputs[:count]
        graph.captures = [
            (self._values[index], inside) for index, inside in zip(captures, inputs[count:])
        ]
        results = outputs[: len(outputs) - len(assigned)]
        rest = iter(results)

        def leaf(what: Any) -> Any:
            if "tensor" in what:
                return next(rest)
            if "rows" in what:
                shape = what["rows"]
                made = IndexedSlices.__new__(IndexedSlices)
                made.values, made.indices = next(rest), next(rest)
                made.dense_shape = None if shape is None else tuple(shape)
                return made
            return None

        arguments = read(written["arguments"], _read_argument)
        specs = [spec for spec in nest.flatten(arguments) if isinstance(spec, TensorSpec)]
        if len(specs) != count:
            raise ValueError(f"{len(specs)} tensors are described where {count} are arguments")
        # As when it was traced: dicts are flattened in the order of their keys.
        result = read_in_order(written["result"], leaf)
        variables = [self._values[index] for index in assigned]
        new_values = outputs[len(results) :]
        return ConcreteFunction.restore(
            graph, arguments, result, results, list(zip(variables, new_values))
        )

    def _thing(self, number: int | None) -> Any:
        if number is None:
            return None
        if number in self._made:
            return self._made[number]
        node = self._nodes[number]
        kind = node["kind"]
        if kind in ("variable", "tensor"):
            made: Any = self._values[node["value"]]
        elif kind == "function":
            traces = [self._functions[index] for index in node["traces"]]
            made = RestoredFunction(node["name"], node["parameters"], traces)
        elif kind == "tuple":
            made = tuple(self._thing(item) for _, item in node["items"])
        elif kind == "list":
            made = self._made[number] = []
            made += [self._thing(item) for _, item in node["items"]]
        elif kind == "dict":
            made = self._made[number] = {}
            made.update((key, self._thing(item)) for key, item in node["items"])
        else:
            made = self._made[number] = Loaded()
            vars(made).update((key, self._thing(item)) for key, item in node["items"])
        self._made[number] = made
        return made


def open_saved(path: Path, what: str) -> BinaryIO:
    """The file of a saved model, to be read; `what` is said of one that is not there.

    Errors: NotFoundError; InvalidArgumentError for a folder.
    """
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise errors.NotFoundError(f"there is no {what} {path}") from None
    except IsADirectoryError:
        raise errors.InvalidArgumentError(
            f"{path} is a folder; a saved model is one file"
        ) from None


def load(export_dir: str | os.PathLike[str]) -> Any:
    """Loads what save() has written (tf.saved_model.load).

    An object with the attributes that were saved: functions with the traces they had, variables,
    tensors, and lists and dicts of them; `signatures` by name, and all `variables`. Functions can
    be called, differentiated and used in other functions.

    Errors: NotFoundError without the file; DataLossError or InvalidArgumentError when it is no
    saved model, was damaged, or was written by a later release.
    """
    path = Path(export_dir)
    with open_saved(path, "saved model") as file:
        data = file.read()
    try:
        model = _native.SavedModel.decode(data, ENGINE)
    except errors.Error as error:
        error.message = f"{path}: {error.message}"
        raise
    try:
        return _Reader(model).root
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise errors.DataLossError(
            f"{path}: its objects are described in a way this release does not know ({error!r})"
        ) from None


def contains_saved_model(export_dir: str | os.PathLike[str]) -> bool:
    """True when there is a file that begins like a saved model."""
    try:
        with Path(export_dir).open("rb") as file:
            return file.read(4) == b"SRSM"
    except OSError:
        return False


__all__ = [
    "DEFAULT_SERVING_SIGNATURE_DEF_KEY",
    "Loaded",
    "RestoredFunction",
    "SignatureFunction",
    "contains_saved_model",
    "load",
    "save",
]
