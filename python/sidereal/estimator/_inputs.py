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


class TensorServingInputReceiver(NamedTuple):
    """As ServingInputReceiver, of a model function that takes one tensor as `features`
    (tf.estimator.export.TensorServingInputReceiver)."""

    features: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: Any = None


class SupervisedInputReceiver(NamedTuple):
    """What a model is evaluated with that was exported to be (see
    Estimator.experimental_export_all_saved_models): `features` and `labels` for the model function,
    made of `receiver_tensors`, a dict of placeholders that callers feed."""

    features: Any
    labels: Any
    receiver_tensors: Any


def _as_dict(receivers: Any, default: str) -> dict[str, Any]:
    found = dict(receivers) if isinstance(receivers, Mapping) else {default: receivers}
    for name, value in found.items():
        if not isinstance(value, Output):
            raise ValueError(f"receiver tensor '{name}' must be a placeholder, not {value!r}")
    return found


def checked_receiver(receiver: Any, is_supervised: bool) -> tuple[Any, Any, dict[str, Any]]:
    """(features, labels, placeholders by name) of what a function of receivers gave; labels are
    None unless it is a supervised one."""
    kind = SupervisedInputReceiver if is_supervised else ServingInputReceiver
    needed = kind._fields[: 3 if is_supervised else 2]
    if not all(hasattr(receiver, name) for name in needed):
        raise ValueError(
            f"serving_input_receiver_fn must give a {kind.__name__}, with {', '.join(needed)}; it "
            f"gave {receiver!r}"
        )
    labels = receiver.labels if is_supervised else None
    return receiver.features, labels, _as_dict(receiver.receiver_tensors, "input")


def build_raw_supervised_input_receiver_fn(
    features: Any, labels: Any, default_batch_size: int | None = None
) -> Callable[[], SupervisedInputReceiver]:
    """As build_raw_serving_input_receiver_fn(), with labels besides
    (tf.estimator.experimental.build_raw_supervised_input_receiver_fn). A tensor that is no member
    of a dict is called "input", or "label"."""
    both = [
        dict(given) if isinstance(given, Mapping) else {name: given}
        for given, name in ((features, "input"), (labels, "label"))
    ]
    twice = sorted(set(both[0]) & set(both[1]))
    if twice:
        raise ValueError(f"features and labels have names in common: {', '.join(twice)}")

    def receive() -> SupervisedInputReceiver:
        made = [_placeholders_like(each, default_batch_size) for each in both]
        given = [
            placeholders if isinstance(like, Mapping) else next(iter(placeholders.values()))
            for placeholders, like in zip(made, (features, labels))
        ]
        return SupervisedInputReceiver(given[0], given[1], made[0] | made[1])

    return receive


def _placeholders_like(values: Mapping[str, Any], batch_size: int | None) -> dict[str, Any]:
    made = {}
    for name, value in values.items():
        shape = tuple(None if n is None or n < 0 else n for n in value.shape)
        made[name] = placeholder(value.dtype, (batch_size, *shape[1:]), name)
    return made


def build_raw_serving_input_receiver_fn(
    features: Any, default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A function whose receiver is fed with features themselves
    (tf.estimator.export.build_raw_serving_input_receiver_fn): placeholders of the dtypes and shapes
    of `features`, a dict of tensors, the first extent being `default_batch_size`."""
    is_dict = isinstance(features, Mapping)
    like: dict[str, Any] = dict(features) if is_dict else {"feature": features}

    def receive() -> ServingInputReceiver:
        made = _placeholders_like(like, default_batch_size)
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
