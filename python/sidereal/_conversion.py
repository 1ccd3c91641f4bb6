"""Which Python functions are rewritten while a function is traced, and when (AutoGraph).

    run = autograph_of(function, True)  # what sidereal.function traces
    run(x)                              # rewrites it, and the user's functions that it calls

Rewriting is of code: once for each, whatever objects and closures it is part of. Library code is
never rewritten. What cannot be rewritten runs as it is, with a warning where that could matter.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import os
import sysconfig
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._rewriting import Rewritten


class AutographWarning(UserWarning):
    """A function cannot be rewritten, so that its control flow cannot depend on tensors."""


class _Status(threading.local):
    """What a thread is doing. `on`: whether functions are rewritten that are called now; None:
    nobody has said."""

    on: bool | None = None
    #: The last operand of `not` that is a value of a graph, and the result.
    negated: tuple[Any, Any] = (None, None)


status = _Status()
#: What rewritten code calls, by name. Whoever has these operators puts them here.
operators = types.SimpleNamespace()
#: What Python's functions are replaced with, by the functions.
builtins: dict[Any, Callable[..., Any]] = {}

#: Of functions that have been rewritten, or are not to be.
_MARK = "autograph_info__"
#: Packages whose functions are not rewritten, beside Python's own.
_LIBRARIES = {
    "IPython", "PIL", "_pytest", "absl", "google", "grpc", "jax", "jaxlib", "keras", "malt",
    "matplotlib", "mock", "numba", "numpy", "onnx", "onnxruntime", "pandas", "pluggy", "polars",
    "pyarrow", "pytest", "ray", "scipy", "sidereal", "six", "sklearn", "tensorboard",
    "tensorflow", "tf_keras", "torch", "tqdm", "wrapt",
}  # fmt: skip
_PYTHON = sysconfig.get_paths()["stdlib"] + os.sep
_SITES = {sysconfig.get_paths()[each] + os.sep for each in ("purelib", "platlib")}

_lock = threading.RLock()
#: What became of code; None: it is not rewritten.
_rewritten: weakref.WeakKeyDictionary[types.CodeType, Rewritten | None] = (
    weakref.WeakKeyDictionary()
)


def marked(entity: Any, extras: Any = None) -> Any:
    """A function that is not rewritten (again)."""
    # An object without attributes of its own is none that is rewritten.
    with contextlib.suppress(AttributeError):
        setattr(getattr(entity, "__func__", entity), _MARK, extras)
    return entity


def with_status(function: Callable[..., Any], on: bool) -> Callable[..., Any]:
    """A function that is called with rewriting switched on or off."""

    def run(*args: Any, **kwargs: Any) -> Any:
        before, status.on = status.on, on
        try:
            return (callee(function) if on else function)(*args, **kwargs)
        finally:
            status.on, status.negated = before, (None, None)

    return marked(functools.update_wrapper(run, function))


def do_not_convert(func: Callable[..., Any] | None = None) -> Any:
    """A function that runs as it is written, with all that it calls. A decorator
    (tf.autograph.experimental.do_not_convert)."""
    return do_not_convert if func is None else with_status(func, False)


def inside(function: Callable[..., Any]) -> Callable[..., Any]:
    """What stands for a function of the user's that library code calls: it rewritten, while one
    around it is."""
    return callee(function) if status.on else function


def converting(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is called with rewriting switched on, unless it is switched off here."""
    return with_status(function, status.on is not False)


def callee(function: Any) -> Any:
    """What is called in the place of `function`, which may be anything."""
    kind = type(function)
    if not status.on and status.on is not None:
        return function
    if kind is types.FunctionType:
        return converted(function)
    if kind is types.MethodType:
        inner = function.__func__
        if type(inner) is types.FunctionType:
            made = converted(inner)
            return function if made is inner else types.MethodType(made, function.__self__)
        return function
    if kind is types.BuiltinFunctionType or isinstance(function, type):
        try:
            return builtins.get(function, function)
        except TypeError:
            return function  # A class whose classes have no hash.
    if kind is functools.partial:
        made = callee(function.func)
        return functools.partial(made, *function.args, **function.keywords)
    call = getattr(kind, "__call__", None)  # noqa: B004 - the function is wanted
    if type(call) is types.FunctionType:
        made = converted(call)
        return function if made is call else types.MethodType(made, function)
    return function


def converted(function: types.FunctionType) -> Any:
    """A function rewritten; itself, where that is not needed or cannot be."""
    if _MARK in function.__dict__:
        return function
    code = function.__code__
    try:
        known = _rewritten[code]
    except KeyError:
        with _lock:
            if code not in _rewritten:
                _rewritten[code] = _rewrite(function)
            known = _rewritten[code]
    return function if known is None else marked(known.instance(function, operators))


def _is_library(function: types.FunctionType) -> bool:
    module = str(function.__globals__.get("__name__", "")).partition(".")[0]
    file = function.__code__.co_filename
    if module in _LIBRARIES or file.startswith("<frozen"):
        return True
    return file.startswith(_PYTHON) and not any(file.startswith(site) for site in _SITES)


def _opnames(code: types.CodeType) -> set[str]:
    found = {instruction.opname for instruction in dis.get_instructions(code)}
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found |= _opnames(const)
    return found


def _rewrite(function: types.FunctionType) -> Rewritten | None:
    code = function.__code__
    if _is_library(function) or code.co_flags & (
        inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    ):
        return None
    names = _opnames(code)
    decides = any("JUMP" in name or name == "FOR_ITER" for name in names)
    if not decides and not any("CALL" in name for name in names):
        return None
    try:
        return rewrite(function)
    except Exception as error:  # noqa: BLE001 - whatever it is, the function runs as it is
        if decides:
            _warn(function, error)
        return None


def rewrite(function: types.FunctionType) -> Rewritten:
    """A function's code rewritten, whatever it is; else an exception that says why not."""
    from . import _rewriting  # noqa: PLC0415 - programs that trace nothing do without malt.

    return _rewriting.rewrite(function)


def _warn(function: types.FunctionType, error: Exception) -> None:
    code = function.__code__
    is_ours = type(error).__name__ == "RefusedError"
    cause = str(error) if is_ours else f"{type(error).__name__}: {error}"
    warnings.warn_explicit(
        f"AutoGraph could not convert {function.__qualname__}(), which runs as it is: its control "
        f"flow cannot depend on tensors. Cause: {cause}. "
        "@sidereal.autograph.experimental.do_not_convert silences this",
        AutographWarning,
        code.co_filename,
        code.co_firstlineno,
    )


__all__ = [
    "AutographWarning", "builtins", "callee", "converted", "converting", "do_not_convert", "inside",
    "marked", "operators", "rewrite", "status", "with_status",
]  # fmt: skip
