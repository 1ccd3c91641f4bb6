"""Features and labels of input functions, and what serving receives
(tf.estimator.export.*_serving_input_receiver_fn)."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .. import dtypes
from .._datasets import Dataset
from .._iterators import GraphIterator
from .._native import Output
from ..ops.parsing import parse_example
from ..v1.graph import get_default_graph, placeholder


def taken_by(function: Callable[..., Any]) -> set[str]:
    """The names of a function's arguments."""
    while hasattr(function, "func"):  # functools.partial
        inner: Any = function
        given = set(inner.keywords)
        names = list(inspect.signature(inner.func).parameters)[len(inner.args) :]
        return {name for name in names if name not in given} | (given & {"params", "config"})
    return set(inspect.signature(function).parameters)


def features_and_labels(input_fn: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """What an input function gives, in the default graph: (features, labels); of a dataset its
    next elements."""
    if not callable(input_fn):
        raise TypeError(f"input_fn must be callable, given: {input_fn!r}")
    names = taken_by(input_fn)
    made = input_fn(**{name: value for name, value in arguments.items() if name in names})
    if isinstance(made, Dataset):
        # Another training in the same servers reads the data from the beginning.
        with get_default_graph().building():
            iterator = GraphIterator(made, f"estimator_input_{secrets.token_hex(8)}")
            made = iterator.get_next()
    if isinstance(made, (list, tuple)) and not hasattr(made, "_fields"):
        if len(made) != 2:
            raise ValueError(
                f"input_fn should return (features, labels) as a len 2 tuple; it has {len(made)}"
            )
        return made[0], made[1]
    return made, None


class ServingInputReceiver(NamedTuple):
    """What a model is served with (tf.estimator.export.ServingInputReceiver): `features` for the
    model function, made of `receiver_tensors`, a dict of placeholders that callers feed."""

    features: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: Any = None


def _as_dict(receivers: Any, default: str) -> dict[str, Any]:
    found = dict(receivers) if isinstance(receivers, Mapping) else {default: receivers}
    for name, value in found.items():
        if not isinstance(value, Output):
            raise ValueError(f"receiver tensor '{name}' must be a placeholder, not {value!r}")
    return found


def checked_receiver(receiver: Any) -> tuple[Any, dict[str, Any]]:
    """(features, placeholders by name) of what a serving_input_receiver_fn gave."""
    if not hasattr(receiver, "features") or not hasattr(receiver, "receiver_tensors"):
        raise ValueError(
            f"serving_input_receiver_fn must give a ServingInputReceiver, not {receiver!r}"
        )
    return receiver.features, _as_dict(receiver.receiver_tensors, "input")


def build_raw_serving_input_receiver_fn(
    features: Any, default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A function whose receiver is fed with features themselves
    (tf.estimator.export.build_raw_serving_input_receiver_fn): placeholders of the dtypes and shapes
    of `features`, a dict of tensors, the first extent being `default_batch_size`."""
    is_dict = isinstance(features, Mapping)
    like: dict[str, Any] = dict(features) if is_dict else {"feature": features}

    def receive() -> ServingInputReceiver:
        made = {}
        for name, value in like.items():
            shape = tuple(None if n is None or n < 0 else n for n in value.shape)
            made[name] = placeholder(value.dtype, (default_batch_size, *shape[1:]), name)
        return ServingInputReceiver(made if is_dict else made["feature"], dict(made))

    return receive


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A function whose receiver is fed with serialized tf.train.Example messages
    (tf.estimator.export.build_parsing_serving_input_receiver_fn), under the name "examples";
    features are what parse_example() makes of them by `feature_spec`."""

    def receive() -> ServingInputReceiver:
        given = placeholder(dtypes.string, [default_batch_size], "input_example_tensor")
        with get_default_graph().building():
            return ServingInputReceiver(parse_example(given, feature_spec), {"examples": given})

    return receive


def numpy_input_fn(
    x: Any, y: Any = None, batch_size: int = 128, num_epochs: int | None = 1,
    shuffle: bool | None = None, queue_capacity: int = 1000, num_threads: int = 1,
) -> Callable[[], Any]:  # fmt: skip
    """An input function of arrays (tf.compat.v1.estimator.inputs.numpy_input_fn): of `x`, an array
    or a dict of arrays of one length, and `y`. num_epochs: None: again and again. shuffle must be
    True or False."""
    if shuffle is None:
        raise ValueError("shuffle must be provided and explicitly set as boolean; it is None.")
    whole = x if y is None else (x, y)

    def make() -> Any:
        data = Dataset.from_tensor_slices(whole)
        if shuffle:
            data = data.shuffle(queue_capacity)
        return data.repeat(num_epochs).batch(batch_size)

    return make
