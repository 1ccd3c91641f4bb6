"""Random tensors: sidereal.random, with TensorFlow's names, argument names and rules for seeds.

Values depend on the seeds, the run and the place of an element only, never on threads. The seeds of
an op:

* neither set_seed() nor the op's `seed`: drawn when the program starts, others in every run of it;
* set_seed(g) only: g, and the number of random ops made before it in its graph (at once: since
  set_seed());
* the op's `seed` only: a fixed one, and the op's;
* both: both.

An op that runs again draws new values: at once, in every call; in a function, in every call of it
and every turn of a loop. Each function counts its calls: equal ones draw the same, whatever else
ran. After set_seed(), calls at once repeat what they drew after the last set_seed() with
that seed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes, errors
from .._dispatch import align, apply, convert, state
from .._native import Output
from . import array
from . import math as _math
from .control import while_loop
from .sorting import argsort
from .sorting import unique as unique_of

__all__ = [
    "bernoulli", "categorical", "log_uniform_candidate_sampler", "normal", "set_seed", "shuffle",
    "stateless_normal", "stateless_truncated_normal", "stateless_uniform", "truncated_normal",
    "uniform", "uniform_candidate_sampler",
]

#: The graph's seed of an op that has a seed of its own where set_seed() was not called.
_DEFAULT_SEED = 87654321
_MASK = (1 << 63) - 1


class _Seeds:
    """The seed of the program and what was counted since it was set."""

    def __init__(self) -> None:
        self.begin(None)

    def begin(self, seed: int | None) -> None:
        self.seed = seed
        self.random_ops = 0
        self.calls: dict[tuple[int, int], int] = {}
        self.drawn = (_fresh(), _fresh())


def _fresh() -> int:
    return int.from_bytes(os.urandom(8), "little") & _MASK


_seeds = _Seeds()


def set_seed(seed: int | None) -> None:
    """The seed of the program, from which those of ops without one follow; None: drawn anew. Counts
    of random ops begin again. TensorFlow: tf.random.set_seed."""
    _seeds.begin(None if seed is None else int(seed) & _MASK)


def _pair(seed: int | None) -> tuple[int, int]:
    """The two seeds of an op that is being made."""
    if seed is not None:
        return (_DEFAULT_SEED if _seeds.seed is None else _seeds.seed), int(seed) & _MASK
    if _seeds.seed is None:
        return _seeds.drawn if state.graph is None else (_fresh(), _fresh())
    counter: Any = _seeds if state.graph is None else state.graph
    made = getattr(counter, "random_ops", 0)
    counter.random_ops = made + 1
    return _seeds.seed, made


def _stream(pair: tuple[int, int]) -> list[Any]:
    """What tells calls of an op apart: a number as an input, or nothing, if the run's will do."""
    if state.graph is not None or pair == _seeds.drawn:
        return []
    count = _seeds.calls.get(pair, 0)
    _seeds.calls[pair] = count + 1
    return [convert(count, dtypes.int64)]


def key_of(seed: int | None) -> tuple[int, list[Any]]:
    """One seed and the stream input of an op that takes a single seed, such as Dropout."""
    pair = _pair(seed)
    return (pair[0] * 0x9E3779B97F4A7C15 + pair[1] * 0xBF58476D1CE4E5B9 + 1) & _MASK, _stream(pair)


def new_seed() -> int:
    """A seed for what keeps one of its own: after set_seed() it follows from that and the number of
    random ops made before, else it is drawn."""
    return _fresh() if _seeds.seed is None else key_of(None)[0]


def seed_of_order(seed: int | None) -> int | None:
    """One seed of a dataset's shuffle(): None where neither it nor the program has one."""
    return None if seed is None and _seeds.seed is None else key_of(seed)[0]


def _draw(op: str, shape: Any, dtype: Any, seed: int | None, name: str | None, **attrs: Any) -> Any:
    pair = _pair(seed)
    return _make(op, shape, dtype, pair, _stream(pair), name, attrs)


def _make(
    op: str,
    shape: Any,
    dtype: Any,
    pair: tuple[int, int],
    stream: list[Any],
    name: str | None,
    attrs: dict[str, Any],
) -> Any:
    attrs = {"seed": pair[0], "seed2": pair[1], "dtype": dtypes.as_dtype(dtype), **attrs}
    extents = _extents(shape)
    if extents is not None:
        return apply(op, stream, {**attrs, "shape": extents}, name=name)
    return apply(op, [convert(shape), *stream], attrs, name=name)


def _extents(shape: Any) -> list[int] | None:
    """A shape that is known as a list; None for a value of a graph."""
    if isinstance(shape, (list, tuple)):
        if all(isinstance(extent, int) for extent in shape):
            return list(shape)
        values = [_value(extent) for extent in shape]
        return None if any(value is None for value in values) else [int(v) for v in values]
    value = _value(shape)
    if value is None:
        return None
    return [int(value)] if getattr(value, "ndim", 0) == 0 else [int(extent) for extent in value]


def _value(x: Any) -> Any:
    if isinstance(x, int):
        return x
    if isinstance(x, Output):
        return None
    if hasattr(x, "numpy"):
        return x.numpy()
    return x if hasattr(x, "__array__") and not hasattr(x, "graph") else None


def uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """Numbers uniform in [minval, maxval): floats ([0, 1) by default), int32 or int64 (`maxval`
    must then be given; limits are Python integers). TensorFlow: tf.random.uniform."""
    dtype = dtypes.as_dtype(dtype)
    if dtype.kind != "f":
        if maxval is None:
            raise errors.InvalidArgumentError("uniform() of integers needs maxval")
        return _draw("RandomUniformInt", shape, dtype, seed, name, minval=int(minval),
                     maxval=int(maxval))
    return _between(_draw("RandomUniform", shape, dtype, seed, name), minval, maxval)


def _between(drawn: Any, minval: Any, maxval: Any) -> Any:
    """Numbers of [0, 1) brought to [minval, maxval)."""
    high = 1 if maxval is None else maxval
    if isinstance(minval, (int, float)) and isinstance(high, (int, float)):
        if minval == 0 and high == 1:
            return drawn
        return _math.add(_math.multiply(drawn, float(high) - float(minval)), float(minval))
    _, low, top = align(drawn, minval, high)
    return _math.add(_math.multiply(drawn, _math.subtract(top, low)), low)


def _scaled(drawn: Any, mean: Any, stddev: Any) -> Any:
    if not (isinstance(stddev, (int, float)) and stddev == 1):
        drawn = _math.multiply(drawn, stddev)
    if not (isinstance(mean, (int, float)) and mean == 0):
        drawn = _math.add(drawn, mean)
    return drawn


def normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """Numbers of the normal distribution; `mean` and `stddev` broadcast. TensorFlow:
    tf.random.normal."""
    return _scaled(_draw("RandomNormal", shape, dtype, seed, name), mean, stddev)


def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """As normal(), values further than two `stddev` from `mean` being drawn again. TensorFlow:
    tf.random.truncated_normal."""
    return _scaled(_draw("TruncatedNormal", shape, dtype, seed, name), mean, stddev)


def bernoulli(
    shape: Any, probability: Any = 0.5, dtype: Any = dtypes.bool_, seed: int | None = None
) -> Any:
    """True (1) with `probability`, which broadcasts to `shape`, else False (0)."""
    drawn = _draw("RandomUniform", shape, dtypes.float32, seed, None)
    return _math.cast(_math.less(drawn, probability), dtype)


def categorical(
    logits: Any,
    num_samples: int,
    dtype: Any = dtypes.int64,
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """`num_samples` classes for each row of logits[batch, classes], class k with a probability in
    proportion to exp(logits[k]): the greatest of the logits plus Gumbel noise. TensorFlow:
    tf.random.categorical."""
    logits = convert(logits)
    shape = logits.shape
    if shape is None or len(shape) != 2 or any(extent < 0 for extent in shape):
        raise errors.InvalidArgumentError(
            f"categorical() needs logits of a known shape [batch, classes], not {shape}"
        )
    noise = _draw("RandomUniform", [shape[0], num_samples, shape[1]], logits.dtype, seed, None)
    # In (0, 1]: the logarithm is finite.
    gumbel = _math.negative(_math.log(_math.negative(_math.log(_math.maximum(
        _math.subtract(1.0, noise), 1e-30)))))
    rows = apply("Reshape", (logits,), {"shape": [shape[0], 1, shape[1]]})
    return _math.argmax(_math.add(rows, gumbel), axis=-1, output_type=dtype, name=name)


def _stateless_pair(seed: Any) -> tuple[int, int]:
    values = _extents(seed)
    if values is None or len(values) != 2:
        raise errors.InvalidArgumentError("seed must be two integers that are known")
    return values[0] & _MASK, values[1] & _MASK


def stateless_uniform(
    shape: Any,
    seed: Sequence[int],
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Any:
    """As uniform(), the same values for the same two integers of `seed` in every call. TensorFlow:
    tf.random.stateless_uniform."""
    dtype = dtypes.as_dtype(dtype)
    stream = [convert(0, dtypes.int64)]
    pair = _stateless_pair(seed)
    if dtype.kind != "f":
        if maxval is None:
            raise errors.InvalidArgumentError("stateless_uniform() of integers needs maxval")
        limits = {"minval": int(minval), "maxval": int(maxval)}
        return _make("RandomUniformInt", shape, dtype, pair, stream, name, limits)
    return _between(
        _make("RandomUniform", shape, dtype, pair, stream, name, {}), minval, maxval
    )


def _stateless(
    op: str, shape: Any, seed: Any, mean: Any, stddev: Any, dtype: Any, name: str | None
) -> Any:
    stream = [convert(0, dtypes.int64)]
    return _scaled(_make(op, shape, dtype, _stateless_pair(seed), stream, name, {}), mean, stddev)


def stateless_normal(
    shape: Any,
    seed: Sequence[int],
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Any:
    """As normal(), the same values for the same two integers of `seed` in every call. TensorFlow:
    tf.random.stateless_normal."""
    return _stateless("RandomNormal", shape, seed, mean, stddev, dtype, name)


def stateless_truncated_normal(
    shape: Any,
    seed: Sequence[int],
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Any:
    """As truncated_normal(), the same values for the same two integers of `seed` in every call.
    TensorFlow: tf.random.stateless_truncated_normal."""
    return _stateless("TruncatedNormal", shape, seed, mean, stddev, dtype, name)


# --- Candidates, of which a softmax over many classes is learned.


def log_uniform_candidate_sampler(
    true_classes: Any, num_true: int, num_sampled: int, unique: bool, range_max: int,
    seed: int | None = None, name: str | None = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Classes below `range_max`, those of small numbers more often, as if class k were the k-th in
    popularity: by log((k + 2) / (k + 1)) / log(range_max + 1) (TensorFlow:
    tf.random.log_uniform_candidate_sampler).

    Gives (sampled_candidates int64 [num_sampled], true_expected_count float32 like
    `true_classes` [batch, num_true], sampled_expected_count [num_sampled]): how often each class
    was to be expected among the sampled ones. unique: draws until there are num_sampled different
    ones."""
    log_range = math.log1p(range_max)

    def draw(count: int) -> Any:
        drawn = uniform([count], dtype="float64", seed=seed)
        ids = _math.cast(_math.floor(_math.expm1(_math.multiply(drawn, log_range))), "int64")
        return _math.minimum(ids, convert(range_max - 1, "int64"))

    def share(classes: Any) -> Any:
        k = _math.cast(classes, "float64")
        odds = _math.log1p(_math.reciprocal(_math.add(k, 1.0)))
        return _math.multiply(odds, 1.0 / log_range)

    return _candidates(true_classes, num_true, num_sampled, unique, range_max, draw, share, name)


def uniform_candidate_sampler(
    true_classes: Any, num_true: int, num_sampled: int, unique: bool, range_max: int,
    seed: int | None = None, name: str | None = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """As log_uniform_candidate_sampler(), each class as often as another (TensorFlow:
    tf.random.uniform_candidate_sampler)."""

    def draw(count: int) -> Any:
        return uniform([count], 0, range_max, "int64", seed)

    def share(classes: Any) -> Any:
        zeros = _math.multiply(_math.cast(classes, "float64"), 0.0)
        return _math.add(zeros, 1.0 / range_max)

    return _candidates(true_classes, num_true, num_sampled, unique, range_max, draw, share, name)


def _candidates(
    true_classes: Any, num_true: int, num_sampled: int, is_unique: bool, range_max: int,
    draw: Callable[[int], Any], share: Callable[[Any], Any], name: str | None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    if num_sampled < 1 or num_true < 1 or range_max < 1:
        raise ValueError(
            f"num_sampled is {num_sampled}, num_true {num_true} and range_max {range_max}; all "
            "must be positive"
        )
    if is_unique and num_sampled > range_max:
        raise ValueError(
            f"num_sampled is {num_sampled}, and there are only {range_max} classes that could be "
            "different"
        )
    true = convert(true_classes)
    if true.shape is not None and len(true.shape) == 2 and true.shape[1] not in (-1, num_true):
        raise ValueError(f"true_classes has the shape {tuple(true.shape)}; num_true is {num_true}")
    if not is_unique:
        sampled = draw(num_sampled)

        def expected(classes: Any) -> Any:
            return _math.multiply(share(classes), float(num_sampled))
    else:
        # Many at once; what was drawn behind the last new one is as if it had not been.
        count = max(64, 2 * num_sampled)
        (drawn,) = while_loop(
            lambda ids: _math.less(array.size(unique_of(ids).y), num_sampled),
            lambda ids: (array.concat([ids, draw(count)], 0),),
            (draw(count),),
            shape_invariants=([None],),
        )
        ids, numbers = unique_of(drawn)
        sampled = array.ensure_shape(ids[:num_sampled], [num_sampled])
        first = _math.reduce_min(
            _math.where(
                _math.equal(numbers, num_sampled - 1),
                array.range(convert(0), array.shape(numbers)[0], convert(1)),
                array.shape(numbers)[0],
            )
        )
        tries = _math.cast(_math.add(first, 1), "float64")

        def expected(classes: Any) -> Any:
            never = _math.multiply(tries, _math.log1p(_math.negative(share(classes))))
            return _math.negative(_math.expm1(never))

    found = [_math.cast(expected(each), "float32") for each in (true, sampled)]
    return apply("StopGradient", (sampled,), None, name=name), found[0], found[1]


def shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Any:
    """The rows of a tensor in a random order (tf.random.shuffle)."""
    value = convert(value)
    # Of float64 two are never equal, or nearly never; then they keep their order.
    drawn = uniform((array.shape(value)[0],), dtype="float64", seed=seed)
    return array.gather(value, argsort(drawn, stable=True), name=name)
