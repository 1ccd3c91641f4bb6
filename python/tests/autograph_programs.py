"""Functions with control flow on tensors, which TensorFlow and sidereal run alike: each of them is
made with the module, and has arguments to be called with."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Program(NamedTuple):
    """What makes a function of a module, and arguments for calls of it."""

    make: Callable[[Any], Callable[..., Any]]
    calls: Sequence[tuple[Any, ...]]


PROGRAMS: dict[str, Program] = {}
#: What TensorFlow refuses (returns in loops, names with two underscores, max() and min()), or gives
#: something else than Python for (variables of functions around that a branch assigns to).
BEYOND: list[str] = []


_kept: Any = None


def f32(*values: float) -> Any:
    return np.float32(values[0]) if len(values) == 1 else np.array(values, np.float32)


def i32(value: int) -> Any:
    return np.int32(value)


def program(*calls: tuple[Any, ...]) -> Callable[..., Any]:
    def add(make: Callable[[Any], Callable[..., Any]]) -> Callable[[Any], Callable[..., Any]]:
        PROGRAMS[make.__name__] = Program(make, calls)
        return make

    return add


def beyond(make: Callable[[Any], Callable[..., Any]]) -> Callable[[Any], Callable[..., Any]]:
    BEYOND.append(make.__name__)
    return make


@program((f32(2.0),), (f32(-2.0),), (f32(0.0),))
def if_else(tf: Any) -> Any:
    def run(x: Any) -> Any:
        if x > 0.0:
            y = x * x
        elif x < 0.0:
            y = -x
        else:
            y = x + 7.0
        return y

    return run


@program((f32(2.0),), (f32(-2.0),))
def if_without_else(tf: Any) -> Any:
    def run(x: Any) -> Any:
        y = x
        if x > 0.0:
            y = y * 3.0
            y += 1.0
        return y

    return run


@program((f32(2.0),), (f32(-2.0),))
def if_of_several_values(tf: Any) -> Any:
    def run(x: Any) -> Any:
        a, b = x, {"c": (x, 1.0)}
        if x > 0.0:
            a, b = a + 1.0, {"c": (a * 2.0, 3.0)}
        return a, b["c"][0], b["c"][1]

    return run


@program((f32(2.0),), (f32(-2.0),), (f32(0.5),))
def early_returns(tf: Any) -> Any:
    def run(x: Any) -> Any:
        if x > 1.0:
            return x * 10.0
        y = x + 1.0
        if y > 1.0:
            return y
        return -y

    return run


@program((f32(2.0),), (f32(-2.0),), (f32(0.5),))
def nested_ifs(tf: Any) -> Any:
    def run(x: Any) -> Any:
        if x > 0.0:
            if x > 1.0:
                y = x * 100.0
            else:
                y = x * 10.0
        else:
            y = x
        return y

    return run


@program((f32(3.0), i32(4)), (f32(3.0), i32(0)))
def while_loop(tf: Any) -> Any:
    def run(x: Any, n: Any) -> Any:
        i = tf.constant(0)
        while i < n:
            x = x * 2.0
            i += 1
        return x, i

    return run


@program((f32(3.0), i32(9)), (f32(30.0), i32(9)), (f32(1.0), i32(2)))
def while_with_break_and_continue(tf: Any) -> Any:
    def run(x: Any, n: Any) -> Any:
        i, total = 0, tf.constant(0.0)
        while i < n:
            i += 1
            if i % 2 == 0:
                continue
            total += x
            if total > 50.0:
                break
        return total, i

    return run


@beyond
@program((f32(3.0), i32(9)), (f32(30.0), i32(9)), (f32(1.0), i32(2)))
def return_in_while(tf: Any) -> Any:
    def run(x: Any, n: Any) -> Any:
        i = tf.constant(0)
        while i < n:
            if tf.cast(i, tf.float32) * x > 20.0:
                return x + tf.cast(i, tf.float32)
            i += 1
        return -x

    return run


@program((i32(5),), (i32(1),), (i32(0),))
def for_range(tf: Any) -> Any:
    def run(n: Any) -> Any:
        total = tf.constant(0)
        for i in tf.range(n):
            total += i * i
        return total

    return run


@program((i32(5),), (i32(0),))
def for_python_range_of_tensor(tf: Any) -> Any:
    def run(n: Any) -> Any:
        total = tf.constant(0)
        for i in range(1, n, 2):
            total += i
        return total

    return run


@program((f32(1.0, 2.0, 3.0),))
def for_rows(tf: Any) -> Any:
    def run(xs: Any) -> Any:
        total = 0.0
        for x in xs:
            total += x * x
        return total

    return run


@program((f32(1.0, 2.0, 30.0, 4.0),), (f32(1.0, 2.0),))
def for_rows_with_break(tf: Any) -> Any:
    def run(xs: Any) -> Any:
        total, count = 0.0, 0
        for x in xs:
            if x > 10.0:
                break
            total += x
            count += 1
        return total, count

    return run


@beyond
@program((f32(1.0, 2.0, 3.0, 4.0), f32(2.5)), (f32(1.0, 2.0), f32(9.0)))
def for_with_return(tf: Any) -> Any:
    def run(xs: Any, limit: Any) -> Any:
        for x in xs:
            if x > limit:
                return x
        return -limit

    return run


@program((i32(3), i32(4)), (i32(3), i32(0)))
def nested_loops(tf: Any) -> Any:
    def run(n: Any, m: Any) -> Any:
        total = 0
        for i in tf.range(n):
            j = 0
            while j < m:
                if (i + j) % 2 == 0:
                    total += i * j
                j += 1
        return total

    return run


@program((f32(2.0), f32(3.0)), (f32(-2.0), f32(3.0)), (f32(2.0), f32(-3.0)), (f32(-1.0), f32(-1.0)))
def logic(tf: Any) -> Any:
    def run(x: Any, y: Any) -> Any:
        both = x > 0.0 and y > 0.0
        one = x > 0.0 or y > 0.0
        no = not x > 0.0
        chained = 0.0 < x < y
        return both, one, no, chained, x > 0.0 and True, False or y > 0.0

    return run


@program((i32(1),), (i32(7),))
def and_guards_its_right_side(tf: Any) -> Any:
    def run(i: Any) -> Any:
        xs = tf.constant([1.0, 2.0, 3.0])
        if i < 3 and tf.gather(xs, i) > 1.0:
            return 1.0
        return 0.0

    return run


@program((f32(2.0),), (f32(-2.0),))
def conditional_expressions(tf: Any) -> Any:
    def run(x: Any) -> Any:
        y = x if x > 0.0 else -x
        return y + (1.0 if y > 1.0 else 2.0), (lambda v: v * 2.0 if v > 0.0 else v)(x)

    return run


@program((f32(2.0),), (f32(-2.0),))
def helpers_and_recursion(tf: Any) -> Any:
    def positive(x: Any) -> Any:
        if x > 0.0:
            return x
        return -x

    def power(x: Any, n: int) -> Any:
        if n == 0:
            return tf.ones_like(x)
        return positive(x) * power(x, n - 1)

    def run(x: Any) -> Any:
        return power(x, 3)

    return run


@beyond
@program((f32(2.0),), (f32(-2.0),))
def methods_and_callables(tf: Any) -> Any:
    class Base:
        def scale(self, x: Any) -> Any:
            if x > 0.0:
                x = x * 2.0
            return x

    class Scaled(Base):
        def __init__(self) -> None:
            self.__factor = 3.0

        def scale(self, x: Any) -> Any:
            if x < 100.0:
                x = super().scale(x)
            return x * self.__factor

        def __call__(self, x: Any) -> Any:
            y = self.scale(x)
            while y > 1.0:
                y = y / 2.0
            return y

        @classmethod
        def of(cls, x: Any) -> Any:
            return x if x > 0.0 else cls.no(x)

        @staticmethod
        def no(x: Any) -> Any:
            return -x if x < 0.0 else x

    scaled = Scaled()

    def run(x: Any) -> Any:
        return scaled(x), scaled.scale(x), Scaled.of(x)

    return run


@beyond
@program((f32(2.0),), (f32(-2.0),))
def closures_and_nonlocals(tf: Any) -> Any:
    def run(x: Any) -> Any:
        global _kept  # noqa: PLW0603 - what is tested
        _kept = x
        if x > 0.0:
            _kept = x * 2.0
        count = tf.constant(0.0)

        def add(amount: Any) -> None:
            nonlocal count
            if amount > 0.0:
                count = count + amount
            else:
                count = count - 1.0

        add(x)
        add(x * 2.0)
        return count, _kept

    return run


@program((f32(2.0),), (f32(-2.0),))
def defaults_and_partials(tf: Any) -> Any:
    def clipped(x: Any, low: float = -1.0, *, high: float = 1.0) -> Any:
        if x < low:
            x = tf.zeros_like(x) + low
        if x > high:
            x = tf.zeros_like(x) + high
        return x

    half = functools.partial(clipped, high=0.5)

    def run(x: Any, *rest: Any, scale: float = 2.0, **kwargs: Any) -> Any:
        return clipped(x), clipped(x, -0.5), half(x) * scale

    return run


@program((f32(2.0),), (f32(-2.0),))
def attributes_are_variables(tf: Any) -> Any:
    class Box:
        pass

    def run(x: Any) -> Any:
        box: Any = Box()
        box.value = x
        box.counts = {"n": tf.constant(0)}
        if x > 0.0:
            box.value = box.value * 2.0
            box.counts["n"] = box.counts["n"] + 1
        for i in tf.range(3):
            box.value = box.value + tf.cast(i, tf.float32)
        return box.value, box.counts["n"]

    return run


@program((f32(2.0), True), (f32(2.0), False))
def python_conditions_stay(tf: Any) -> Any:
    def run(x: Any, flag: bool) -> Any:
        names = []
        for name in ("a", "b", "c"):
            if name == "b" and not flag:
                continue
            names.append(name)
        y = x
        while len(names) < 5:
            names.append("d")
            y += 1.0
        if flag or None:
            return y * len(names)
        return y

    return run


@beyond
@program((f32(1.0, 2.0, 3.0),), (f32(1.0, 2.0),))
def python_functions(tf: Any) -> Any:
    def run(xs: Any) -> Any:
        total = tf.constant(0.0)
        for i in range(len(xs)):
            total += xs[i] * float(i)
        n = int(total)
        return total, n, float(n) / 2.0, max(total, 3.0), min(total, 3.0)

    return run


@program((f32(1.0, 2.0, 3.0),))
def shape_invariants(tf: Any) -> Any:
    def run(xs: Any) -> Any:
        out, shape = tf.zeros([0]), tf.TensorShape([None])
        for x in xs:
            tf.autograph.experimental.set_loop_options(shape_invariants=[(out, shape)])
            if x > 1.0:
                out = tf.concat([out, [x]], 0)
        return out

    return run


@program((i32(9),), (i32(2),))
def maximum_iterations(tf: Any) -> Any:
    def run(n: Any) -> Any:
        i = tf.constant(0)
        while i < n:
            tf.autograph.experimental.set_loop_options(maximum_iterations=4)
            i += 1
        return i

    return run


@program((f32(2.0),), (f32(-2.0),))
def variables_in_branches(tf: Any) -> Any:
    v = tf.Variable(1.0)

    def run(x: Any) -> Any:
        if x > 0.0:
            v.assign_add(x)
        for _ in tf.range(3):
            v.assign(v * 2.0)
            if v > 10.0:
                v.assign_sub(1.0)
        return v.read_value()

    return run


@program((f32(2.0),), (f32(-2.0),))
def variables_as_conditions(tf: Any) -> Any:
    on = tf.Variable(True)
    count = tf.Variable(0)

    def run(x: Any) -> Any:
        if on:
            on.assign(False)
            x = x * 5.0
        while count < 4:
            count.assign_add(1)
            x += 1.0
        return x

    return run


@program((np.int64(3),), (np.int64(100),))
def datasets(tf: Any) -> Any:
    data = tf.data.Dataset.range(7)

    def run(limit: Any) -> Any:
        total = tf.constant(0, tf.int64)
        for each in data:
            total += each
        first = tf.constant(0, tf.int64)
        for place, each in enumerate(data.map(lambda v: v * 2 if v > 2 else v)):
            if each > limit:
                break
            first += each * place
        return total, first

    return run


@program((np.int64(3),), (np.int64(1),), (np.int64(100),))
def iterators(tf: Any) -> Any:
    elements = iter(tf.data.Dataset.range(12))

    def run(limit: Any) -> Any:
        total = tf.constant(0, tf.int64)
        for each in elements:
            total += each
            if total > limit:
                break
        return total

    return run


@program((f32(1.0, 2.0, 3.0),))
def loops_in_mapped_functions(tf: Any) -> Any:
    def step(x: Any) -> Any:
        while x < 10.0:
            x = x * 2.0
        return x

    def run(xs: Any) -> Any:
        return tf.map_fn(step, xs), tf.map_fn(lambda x: x if x > 1.5 else -x, xs)

    return run


@program((f32(2.0),))
def no_conversion(tf: Any) -> Any:
    @tf.autograph.experimental.do_not_convert
    def plain(x: Any) -> Any:
        return x * (2.0 if isinstance(x, float) else 3.0)

    def run(x: Any) -> Any:
        if x > 0.0:
            x = plain(x)
        return x

    return run


@program((f32(2.0),), (f32(-1.0),))
def with_and_try(tf: Any) -> Any:
    def run(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            if x > 0.0:
                y = x * x
            else:
                y = x * 5.0
        try:
            g = tape.gradient(y, x)
        finally:
            z = y + 1.0
        return g, z

    return run


@program((i32(0),), (i32(3),))
def last_value_of_a_loop(tf: Any) -> Any:
    def run(n: Any) -> Any:
        last = -1
        for i in tf.range(n):
            last = i
        return last

    return run


@program((f32(2.0),), (f32(20.0),))
def python_loops_that_tensors_leave(tf: Any) -> Any:
    def run(x: Any) -> Any:
        y = x
        stop = False
        for k in tf.range(5):
            if not stop:
                y = y + tf.cast(k, tf.float32)
                stop = y > 5.0
        return y

    return run


@beyond
@program((f32(1.0, 2.0, 3.0), f32(2.5)), (f32(1.0, 2.0), f32(9.0)))
def elses_of_loops_and_names_in_conditions(tf: Any) -> Any:
    def run(xs: Any, limit: Any) -> Any:
        found = 0.0
        for x in xs:
            if (square := x * x) > limit:
                found = square
                break
        else:
            found = -limit
        n = 0
        while (n := n + 1) < 5:
            try:
                if n == 3:
                    continue
            except ValueError as error:
                raise TypeError("no") from error
            else:
                found = found + float(n)
        return found

    return run


#: Functions of tensors whose gradients are compared, and where.
GRADIENTS: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {}


def gradient(*values: Any) -> Callable[..., Any]:
    def add(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        GRADIENTS[make.__name__] = (make, values)
        return make

    return add


@gradient(np.float64(1.3), np.float64(-0.7))
def of_branches(tf: Any) -> Any:
    def run(x: Any) -> Any:
        if x > 0.0:
            return tf.tanh(x) * x
        return x * x * x

    return run


@gradient(np.array([0.3, -0.8, 1.1]))
def of_rows(tf: Any) -> Any:
    def run(xs: Any) -> Any:
        total = tf.constant(1.0, tf.float64)
        for x in xs:
            if x > 0.0:
                total = total * x
            else:
                total = total - x * x
        return total

    return run


@gradient(np.float64(1.3), np.float64(0.4))
def of_loops(tf: Any) -> Any:
    def run(x: Any) -> Any:
        y, n = x, 0
        while y < 5.0:
            y = y * 1.5 + tf.sin(x)
            n += 1
            if n > 6:
                break
        return y

    return run


@gradient(np.array([0.3, -0.8, 1.1]))
def of_returns_in_loops(tf: Any) -> Any:
    def run(xs: Any) -> Any:
        total = tf.constant(0.0, tf.float64)
        for x in xs:
            total += x * x * x
            if total < 0.0:
                return total * 3.0
        return total

    return run
