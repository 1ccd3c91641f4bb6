"""Objects that can be written as a config and made again from it, or found by a name."""

from __future__ import annotations

import difflib
import inspect
import itertools
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import prod
from typing import Any, ClassVar

import numpy as np

from .. import dtypes, errors
from .._dispatch import convert
from .._native import Tensor
from ..ops import array, math, nn, strings

_counts: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)


def snake_case(name: str) -> str:
    """ "MeanSquaredError" as "mean_squared_error"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def own_name(of: object, kind: str = "") -> str:
    """A name for an object that was given none: that of its class, or of its `kind`, with a number
    if it is not the first one."""
    base = snake_case(kind or type(of).__name__)
    number = next(_counts[base])
    return base if number == 0 else f"{base}_{number}"


class Configured:
    """Base of what can be made again from the arguments it was made with."""

    _arguments: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        if cls.__init__ is object.__init__ and (args or kwargs):
            raise TypeError(f"{cls.__name__}() takes no arguments")
        signature = inspect.signature(cls.__init__)
        try:
            given = signature.bind(self, *args, **kwargs)
        except TypeError:
            return self  # __init__ says what is wrong, or it is a copy that is being made.
        given.apply_defaults()
        arguments = dict(given.arguments)
        del arguments[next(iter(signature.parameters))]
        for name, parameter in signature.parameters.items():
            if parameter.kind == inspect.Parameter.VAR_KEYWORD:
                arguments |= arguments.pop(name)
            elif parameter.kind == inspect.Parameter.VAR_POSITIONAL:
                arguments.pop(name, None)
        self._arguments = arguments
        return self

    def get_config(self) -> dict[str, Any]:
        """The arguments it was made with, as numbers, text, lists and configs where these can say
        it."""
        present = {
            name: getattr(self, name)
            for name in ("name", "dtype")
            if name in self._arguments and hasattr(self, name)
        }
        return {name: _plain(value) for name, value in (self._arguments | present).items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """An object like the one that gave this config."""
        return cls(**{name: deserialize(value) for name, value in config.items()})


def names_like(name: str, known: Iterable[str]) -> str:
    """What a message says of the names there are: those that are like one that is not known, or all
    of them, each in one spelling."""
    by_word: dict[str, str] = {}
    for each in known:
        by_word.setdefault(snake_case(each), each)
    near = difflib.get_close_matches(snake_case(name), by_word)
    if near:
        return f"names like it: {', '.join(by_word[each] for each in near)}"
    return f"there are: {', '.join(by_word.values())}"


def one_of(where: str, name: str, value: Any, allowed: Sequence[str]) -> str:
    """The text in `allowed` that an argument is, in whatever case; ValueError if it is none."""
    for each in allowed:
        if str(value).lower() == each.lower():
            return each
    raise ValueError(f"{where}: {name} is {value!r}; it must be one of {', '.join(allowed)}")


def parameter(name: str, default: Any) -> inspect.Parameter:
    """An argument that has a default."""
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)


def own_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The arguments of a function of (y_true, y_pred, ...) behind these two."""
    return list(inspect.signature(function).parameters.values())[2:]


def constructor(
    parameters: Iterable[inspect.Parameter], init: Callable[[Any, dict[str, Any]], None]
) -> Callable[..., None]:
    """An __init__ of these parameters that ends in init(self, arguments), `arguments` having a
    value for each of them."""
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([first, *parameters])

    def bound(*args: Any, **kwargs: Any) -> None:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(args[0]).__name__}(): {error}") from None
        given.apply_defaults()
        arguments = dict(given.arguments)
        init(arguments.pop("self"), arguments)

    bound.__signature__ = signature  # type: ignore[attr-defined]
    return bound


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "get_config") and not inspect.isclass(value):
        return serialize(value)
    return value


# --- Names of classes and functions of one's own.


class _Custom(threading.local):
    """What the scopes that a thread is in know by name, the innermost one last."""

    def __init__(self) -> None:
        self.scopes: list[Mapping[str, Any]] = []


_custom = _Custom()
_registered: dict[str, Any] = {}
_registered_names: dict[Any, str] = {}


def register_keras_serializable(
    package: str = "Custom", name: str | None = None
) -> Callable[[Any], Any]:
    """A decorator by which a class, that has get_config(), or a function is known when a model is
    loaded, as "package>name"."""

    def register(arg: Any) -> Any:
        if inspect.isclass(arg) and not hasattr(arg, "get_config"):
            raise ValueError(
                f"{arg.__name__} cannot be registered: it has no get_config(), by which what is "
                "saved could be made again"
            )
        full = f"{package}>{name or arg.__name__}"
        _registered[full], _registered_names[arg] = arg, full
        return arg

    return register


def get_registered_name(obj: Any) -> str:
    """The name that a class or function was registered by, else its own."""
    try:
        return _registered_names.get(obj) or str(obj.__name__)
    except TypeError:  # It cannot be a key.
        return str(obj.__name__)


def get_registered_object(
    name: str, custom_objects: Mapping[str, Any] | None = None,
    module_objects: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """The class or function of that name in the scopes, among what is registered, and in the two
    dicts; None if there is none."""
    places = [*reversed(_custom.scopes), _registered, custom_objects or {}, module_objects or {}]
    return next((place[name] for place in places if name in place), None)


def get_custom_objects() -> dict[str, Any]:
    """What is registered by name; what is put there is known too."""
    return _registered


class CustomObjectScope:
    """A context in which classes and functions are known by the names of a dict."""

    def __init__(self, custom_objects: Mapping[str, Any] | None) -> None:
        self.custom_objects = custom_objects or {}

    def __enter__(self) -> CustomObjectScope:
        _custom.scopes.append(self.custom_objects)
        return self

    def __exit__(self, *_: Any) -> None:
        _custom.scopes.pop()


custom_object_scope = CustomObjectScope


# --- Objects as what JSON can say.

#: Modules whose functions are known by their names: they compute, and do nothing else.
_COMPUTING: dict[str, Any] = {"array": array, "math": math, "nn": nn, "strings": strings}


class Hooks(threading.local):
    """What else is done with objects while a model is saved or loaded. saved(object, entry) gives
    changes of its entry; loaded(object, entry) is told of one that was made, before it is built and
    after. compiles: whether models are compiled. elements: how many weights may have that are made;
    None: any number."""

    saved: Callable[[Any, dict[str, Any]], dict[str, Any]] | None = None
    loaded: Callable[[Any, Mapping[str, Any]], None] | None = None
    compiles = True
    elements: int | None = None
    #: Numbers of layers that are written, by id, and layers that are made by number: one that is a
    #: part of several models is made once.
    numbers: dict[int, int] | None = None
    made: dict[int, Any] | None = None

    def sharing(self) -> AbstractContextManager[None]:
        """The outermost of these contexts is all within which layers are known as the same."""
        if self.numbers is not None and self.made is not None:
            return nullcontext()
        return self.changed(numbers={}, made={})

    @contextmanager
    def changed(self, **values: Any) -> Iterator[None]:
        """Has others in the context."""
        before = {name: getattr(self, name) for name in values}
        vars(self).update(values)
        try:
            yield
        finally:
            vars(self).update(before)

    def take(self, name: str, shape: Sequence[int]) -> None:
        """DataLossError if a weight of this shape would be more than there may be."""
        if self.elements is None:
            return
        self.elements -= prod(shape)
        if self.elements < 0:
            raise errors.DataLossError(
                f"the config makes a weight '{name}' of shape {tuple(shape)}; the weights that are "
                "saved with it have not as many elements together"
            )


hooks = Hooks()


def _entry(name: str, config: Any, module: str | None = "builtins") -> dict[str, Any]:
    return {"module": module, "class_name": name, "config": config, "registered_name": None}


def known_in(what: Any) -> str | None:
    """The module of Keras, or of ops, that has a class or function by its name."""
    name = str(getattr(what, "__name__", ""))
    for module, registry in Registry.modules.items():
        if registry.named(name) is what:
            return module
    for module in _COMPUTING:
        if name and _computing(module, name) is what:
            return f"ops.{module}"
    return None


def _computing(module: str, name: str) -> Any:
    """The function of that name in a module of ops; None if there is none."""
    found = vars(_COMPUTING[module]).get(name) if module in _COMPUTING else None
    is_own = inspect.isfunction(found) and found.__module__ == _COMPUTING[module].__name__
    return found if is_own and not name.startswith("_") else None


def is_registered(what: Any) -> bool:
    """Whether a class or function is known when it is loaded."""
    return known_in(what) is not None or get_registered_object(get_registered_name(what)) is what


def _serialize_function(function: Any) -> dict[str, Any]:
    name = get_registered_name(function)
    if not is_registered(function) and not name.isidentifier():
        raise ValueError(
            f"{function!r} cannot be saved: what a function does is not written, and this one has "
            "no name to find it by. Make it a function with a name, and register it with "
            "@keras.saving.register_keras_serializable(), or write a layer"
        )
    module = known_in(function)
    if module is not None:
        return {**_entry("function", function.__name__, module), "registered_name": None}
    return {**_entry("function", function.__name__, None), "registered_name": name}


def serialize(obj: Any) -> Any:
    """An object as numbers, text, lists and dicts that JSON can say: those with a get_config() as
    their class and config, functions as their names. ValueError or TypeError for what cannot be
    said so. deserialize() is the reverse."""
    if obj is None or isinstance(obj, (bool, int, float, str)):
        return obj
    if isinstance(obj, bytes):
        return _entry("__bytes__", {"value": obj.decode("latin-1")})
    if isinstance(obj, (np.ndarray, np.generic, Tensor)):
        return _serialize_array(obj)
    if isinstance(obj, dtypes.DType):
        return dtypes.name_of(obj)
    if isinstance(obj, Mapping):
        if not all(isinstance(key, str) for key in obj):
            raise TypeError(f"keys of dicts must be text to be saved; these are {list(obj)}")
        return {key: serialize(value) for key, value in obj.items()}
    if isinstance(obj, list):
        return [serialize(value) for value in obj]
    if isinstance(obj, tuple):
        return _entry("__tuple__", {"value": [serialize(value) for value in obj]})
    if inspect.isclass(obj) and issubclass(obj, np.generic):
        return dtypes.name_of(dtypes.as_dtype(obj))
    if inspect.isclass(obj):
        return {**_entry("__class__", obj.__name__, known_in(obj)),
                "registered_name": get_registered_name(obj)}  # fmt: skip
    if hasattr(obj, "get_config"):
        return _serialize_object(obj)
    if hasattr(obj, "__name__"):
        return _serialize_function(obj)
    raise TypeError(
        f"{obj!r} of class {type(obj).__name__} cannot be saved; it is no number, text, list or "
        "array, and has no get_config()"
    )


def _serialize_array(value: Any) -> dict[str, Any]:
    kind = "__tensor__" if isinstance(value, Tensor) else "__numpy__"
    dtype = dtypes.name_of(value.dtype) if kind == "__tensor__" else value.dtype.name
    if dtype in ("float16", "bfloat16"):
        value = math.cast(value, "float32") if kind == "__tensor__" else value
    values = value.numpy() if kind == "__tensor__" else value
    listed = serialize(values.tolist())
    return _entry(kind, {"value": listed, "dtype": dtype, "shape": list(values.shape)})


def _serialize_object(obj: Any) -> dict[str, Any]:
    cls = type(obj)
    check = getattr(obj, "_check_saved", None)
    if check is not None:
        check()
    with hooks.sharing():
        return _entry_of(obj, cls)


def _entry_of(obj: Any, cls: Any) -> dict[str, Any]:
    config = obj.get_config()
    if not isinstance(config, Mapping):
        raise TypeError(f"get_config() of {cls.__name__} gives {config!r}; it must give a dict")
    module = known_in(cls)
    entry = {
        "module": module or cls.__module__,
        "class_name": cls.__name__,
        "config": serialize(config),
        "registered_name": None if module else get_registered_name(cls),
    }
    if hasattr(obj, "_children") and hooks.numbers is not None:
        entry["shared_object_id"] = hooks.numbers.setdefault(id(obj), len(hooks.numbers))
    for what in ("build_config", "compile_config") if hooks.compiles else ("build_config",):
        more = getattr(obj, f"get_{what}", lambda: None)()
        if more:
            entry[what] = more
    return entry | (hooks.saved(obj, entry) if hooks.saved else {})


def _is_entry(config: Mapping[str, Any]) -> bool:
    return "class_name" in config and "config" in config


def _found(entry: Mapping[str, Any], name: Any, custom_objects: Mapping[str, Any] | None) -> Any:
    """The class or function that an entry names."""
    for each in (entry.get("registered_name"), name):
        found = get_registered_object(each, custom_objects) if isinstance(each, str) else None
        if found is not None:
            return found
    module = entry.get("module")
    if isinstance(module, str) and isinstance(name, str):
        registry = Registry.modules.get(module)
        if registry is not None:
            found = registry.named(name)
        else:
            found = _computing(module.removeprefix("ops."), name)
        if found is not None:
            return found
    raise TypeError(
        f"there is no class or function {name!r} of module {module!r}; if it is one of your own, "
        "register it with @keras.saving.register_keras_serializable(), or give it in "
        "custom_objects, by its name"
    )


def _array_of(config: Mapping[str, Any], is_tensor: bool) -> Any:
    value, dtype = deserialize(config["value"]), config.get("dtype")
    if not is_tensor:
        return np.array(value, dtype)
    made = np.array(value, object if dtype == "string" else None)
    made = made.reshape(config.get("shape", made.shape))
    return convert(made, dtype)


def deserialize(
    config: Any, custom_objects: Mapping[str, Any] | None = None, safe_mode: bool = True
) -> Any:
    """What serialize() wrote. Classes and functions are found among those of Keras, what is
    registered, the scopes and `custom_objects`; nothing is imported. What was made already stays as
    it is. `safe_mode` changes nothing: no code is ever read."""
    del safe_mode
    if custom_objects:
        with CustomObjectScope(custom_objects):
            return deserialize(config)
    if isinstance(config, list):
        return [deserialize(value) for value in config]
    if not isinstance(config, Mapping):
        return config
    if not _is_entry(config):
        return {key: deserialize(value) for key, value in config.items()}
    name, inner = config["class_name"], config["config"]
    if name == "__bytes__":
        return inner["value"].encode("latin-1")
    if name == "__tuple__":
        return tuple(deserialize(value) for value in inner["value"])
    if name in ("__numpy__", "__tensor__"):
        return _array_of(inner, name == "__tensor__")
    if name in ("function", "__class__"):
        return _found(config, inner, None)
    with hooks.sharing():
        return _object_of(config)


def _object_of(config: Mapping[str, Any]) -> Any:
    name, number = config["class_name"], config.get("shared_object_id")
    shared = {} if hooks.made is None else hooks.made
    if number in shared:
        return shared[number]
    cls = _found(config, name, None)
    if not hasattr(cls, "from_config"):
        raise TypeError(f"{name} cannot be made of a config: it has no from_config()")
    made = cls.from_config(config["config"])
    if number is not None:
        shared[number] = made
    if hooks.loaded is not None:
        hooks.loaded(made, config)
    build, compiled = config.get("build_config"), config.get("compile_config")
    if build and not made.built:
        made.build_from_config(build)
        if hooks.loaded is not None:
            hooks.loaded(made, config)
    if compiled and hooks.compiles:
        made.compile_from_config(compiled)
    return made


class Registry:
    """What is known of one kind by name, and get(), serialize() and deserialize() of its module.

    `module`: the module of Keras that has it. `named`: classes and functions that have a name of
    their own, classes that in snake case too; `aliases`: other names.
    """

    #: All of them by their modules.
    modules: ClassVar[dict[str, Registry]] = {}

    def __init__(
        self, module: str, named: Iterable[Any], aliases: Mapping[str, Any] | None = None
    ) -> None:
        self.module = module
        Registry.modules[module] = self
        self._kind = module.rsplit(".", 1)[-1]
        self._named = {each.__name__: each for each in named}
        in_snake_case = {snake_case(name): each for name, each in self._named.items()}
        self._known = {**in_snake_case, **self._named, **(aliases or {})}

    def named(self, name: Any) -> Any:
        """The class or function that has this name of its own; None if there is none."""
        return self._named.get(name)

    def get(self, identifier: Any) -> Any:
        """An object from itself, its class, a name or a config; None from None."""
        if identifier is None:
            return None
        if isinstance(identifier, Mapping):
            return self.deserialize(identifier)
        found = identifier
        if isinstance(identifier, str):
            found = self._find(identifier, {})
        elif not callable(identifier):
            raise ValueError(
                f"keras.{self._kind}.get(): {identifier!r} is none of them; give a name, a config, "
                "or something that can be called"
            )
        return found() if inspect.isclass(found) else found

    def _find(self, name: str, custom_objects: Mapping[str, Any]) -> Any:
        found = get_registered_object(name, custom_objects, self._known)
        if found is None:
            raise ValueError(
                f"keras.{self._kind} has nothing called {name!r}; {names_like(name, self._known)}"
            )
        return found

    def serialize(self, what: Any) -> Any:
        """A function as its name, an object as the names of its module and class and its config."""
        if what is None or isinstance(what, str):
            return what
        if inspect.isfunction(what) or not hasattr(what, "get_config"):
            name = getattr(what, "__name__", "")
            if not name.isidentifier():
                raise ValueError(f"keras.{self._kind}.serialize(): {what!r} has no name")
            return name
        return _serialize_object(what)

    def deserialize(self, config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
        """The reverse of serialize(); `custom_objects` has by name what is not known here."""
        if not isinstance(config, Mapping):
            named = isinstance(config, str)
            return self.get(self._find(config, custom_objects or {}) if named else config)
        if "class_name" not in config:
            raise ValueError(
                f"keras.{self._kind}.deserialize(): a config has class_name and config; this has: "
                f"{', '.join(map(str, config)) or 'nothing'}"
            )
        if config["class_name"] == "function" or config.get("registered_name"):
            return deserialize(config, custom_objects)
        made = self._find(config["class_name"], custom_objects or {})
        if not isinstance(made, type):
            return made
        cls: Any = made
        with CustomObjectScope(custom_objects):
            return cls.from_config(config.get("config") or {})
