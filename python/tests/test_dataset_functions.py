"""Datasets in functions: iterators that a call makes for itself, loops over elements, and positions
as values."""

import threading
import time

import numpy as np
import pytest
from session_servers import PATIENCE_S

import sidereal as sr
import sidereal.v1 as v1
from sidereal import errors

Dataset = sr.data.Dataset



# Iterators of a call.


def test_each_call_begins_with_the_first_element():
    outside = Dataset.range(10).map(lambda x: x * 2)

    @sr.function
    def pair():
        it = iter(outside)
        return next(it), it.get_next()

    for _ in range(3):
        assert [int(x) for x in pair()] == [0, 2]
    nested = Dataset.from_tensor_slices({"a": [1.0, 2.0], "b": [b"x", b"y"]})

    @sr.function
    def second():
        it = iter(nested)
        next(it)
        return next(it)

    found = second()
    assert found["a"].numpy() == 2
    assert found["b"].numpy() == b"y"


def test_datasets_are_made_of_values_of_the_function():
    @sr.function
    def third(start, factor):
        ds = Dataset.range(start, start + 5).map(lambda x: x * factor)
        it = iter(ds.skip(start - start + 1))
        return next(it), next(it), it.element_spec.dtype is sr.int64

    one = sr.constant(1, "int64")
    assert [int(x) for x in third(one * 7, one * 10)[:2]] == [80, 90]
    assert [int(x) for x in third(one * 2, one * 3)[:2]] == [9, 12]


def test_variables_are_read_by_each_call():
    factor = sr.Variable(2, dtype="int64")

    @sr.function
    def second():
        it = iter(Dataset.range(3).map(lambda x: x * factor))
        next(it)
        return next(it)

    assert int(second()) == 2
    factor.assign(5)
    assert int(second()) == 5


def test_datasets_of_datasets_are_made_of_them_too():
    @sr.function
    def second(x, count):
        ds = Dataset.from_tensor_slices(x).flat_map(lambda row: Dataset.range(row, row + count))
        it = iter(ds)
        return next(it), next(it), next(it)

    found = second(sr.constant(np.array([5, 20])), sr.constant(2, "int64"))
    assert [int(x) for x in found] == [5, 6, 20]


def test_the_end_is_an_error_of_the_call():
    @sr.function
    def step():
        it = iter(Dataset.range(1))
        return next(it), next(it)

    for _ in range(2):
        with pytest.raises(errors.OutOfRangeError, match="End of sequence"):
            step()


def test_iterators_are_used_in_branches_and_loops():
    ds = Dataset.range(100)

    @sr.function
    def total(count):
        it = iter(ds)

        def more(i, x):
            skipped = sr.cond(i > 1, lambda: next(it), lambda: sr.constant(0, "int64"))
            return i + 1, x + next(it) + skipped

        zero = sr.constant(0, "int64")
        return sr.while_loop(lambda i, _: i < count, more, [sr.constant(0), zero])[1]

    # 0, 1, then pairs.
    assert int(total(sr.constant(2))) == 1
    assert int(total(sr.constant(4))) == sum(range(6))


def test_calls_of_one_function_at_a_time_have_iterators_of_their_own():
    @sr.function
    def first_ones(offset):
        it = iter(Dataset.range(offset, offset + 200).shuffle(3, seed=1).prefetch(2))
        total = sr.constant(0, "int64")
        for _ in range(50):
            total += next(it)
        return total

    expected = [int(first_ones(sr.constant(i, "int64"))) for i in range(4)]
    found = [[] for _ in range(4)]

    def call(i):
        for _ in range(20):
            found[i].append(int(first_ones(sr.constant(i, "int64"))))

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[value] * 20 for value in expected]


def threads_of(name):
    """How many threads of the process the system knows."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))


def test_iterators_end_with_their_calls():
    @sr.function
    def step(x):
        it = iter(Dataset.range(10**9).map(lambda n: n + 1, num_parallel_calls=2).prefetch(4))
        return next(it) + x

    @sr.function
    def failing(x):
        it = iter(Dataset.range(10**9).prefetch(4))
        return sr.ensure_shape(sr.reshape(next(it), [1]) + x, [3])

    one = sr.constant(np.ones([1], np.int64))
    step(one)
    with pytest.raises(errors.InvalidArgumentError):
        failing(one)
    before = threads_of("Threads")
    for _ in range(30):
        step(one)
        with pytest.raises(errors.InvalidArgumentError):
            failing(one)
    # Those of the last calls at most; a loaded machine takes a while to end the others.
    until = time.monotonic() + PATIENCE_S
    while threads_of("Threads") > before + 8:
        assert time.monotonic() < until


def test_what_cannot_be_iterated_there_is_said():
    scale = sr.Variable(2, dtype="int64")
    python = Dataset.from_generator(lambda: range(3), output_signature=sr.TensorSpec((), sr.int32))
    scaled = Dataset.range(3).map(lambda x: x * scale)
    cases = (
        (lambda: next(iter(scaled)),
         errors.UnimplementedError, "variable.*iterator outside"),
        (lambda: next(iter(python)), errors.FailedPreconditionError, "Python code"),
        (lambda: next(iter(Dataset.range(9).window(3))), errors.UnimplementedError, "window"),
        (lambda: [x + 1 for x in Dataset.range(3)], errors.UnimplementedError, r"reduce\("),
        (lambda: [x + 1 for x in iter(Dataset.range(3))], errors.UnimplementedError, r"reduce\("),
        (lambda: list(Dataset.range(3)), errors.UnimplementedError, "more than 1000"),
    )  # fmt: skip
    for function, kind, text in cases:
        with pytest.raises(kind, match=text):
            sr.function(function)()
    made = []

    @sr.function
    def leak():
        made.append(iter(Dataset.range(3)))
        return next(made[0])

    leak()
    with pytest.raises(errors.FailedPreconditionError, match="make it outside"):
        next(made[0])
    with v1.Graph().building(), pytest.raises(errors.UnimplementedError, match="make_one_shot"):
        iter(Dataset.range(3))


def test_a_loop_of_python_over_an_iterator_from_outside_is_refused():
    it = iter(Dataset.range(3))

    @sr.function(autograph=False)
    def total():
        found = sr.constant(0, "int64")
        for x in it:
            found += x
        return found

    with pytest.raises(errors.UnimplementedError, match=r"reduce\("):
        total()
    assert int(next(it)) == 0


# Loops.


def test_reduce_is_a_loop_of_the_graph():
    ds = Dataset.from_tensor_slices(np.arange(12, dtype=np.float32)).batch(5)

    @sr.function
    def total(start):
        return ds.reduce((start, 0), lambda now, x: (now[0] + sr.reduce_sum(x), now[1] + 1))

    for start in (0.0, 10.0):
        value, count = total(sr.constant(start))
        assert float(value) == start + 66
        assert int(count) == 3
    at_once = ds.reduce((0.0, 0), lambda now, x: (now[0] + sr.reduce_sum(x), now[1] + 1))
    assert [float(x) for x in at_once] == [66, 3]


def test_reduce_of_nothing_and_of_structures():
    @sr.function
    def count(ds_size):
        ds = Dataset.range(ds_size).map(lambda x: {"x": x, "name": sr.strings.as_string(x)})
        start = {"n": sr.constant(0), "last": sr.constant("none")}
        return ds.reduce(start, lambda now, e: {"n": now["n"] + 1, "last": e["name"]})

    assert [count(sr.constant(n, "int64"))["n"].numpy() for n in (0, 1, 4)] == [0, 1, 4]
    assert count(sr.constant(0, "int64"))["last"].numpy() == b"none"
    assert count(sr.constant(12, "int64"))["last"].numpy() == b"11"


def test_an_error_of_an_element_ends_the_loop():
    @sr.function
    def total(x):
        ds = Dataset.from_tensor_slices(x).map(lambda e: sr.ensure_shape(sr.reshape(e, [-1]), [2]))
        return ds.reduce(0.0, lambda now, e: now + sr.reduce_sum(e))

    assert float(total(sr.constant(np.ones([3, 2], np.float32)))) == 6
    with pytest.raises(errors.InvalidArgumentError):
        total(sr.constant(np.ones([3, 3], np.float32)))


# Positions.


def test_positions_are_values_of_functions():
    it = iter(Dataset.range(30).shuffle(5, seed=3).batch(3).prefetch(2))

    @sr.function
    def step():
        return next(it)

    @sr.function
    def save():
        return it.save()

    @sr.function
    def restore(position):
        it.restore(position)
        return next(it)

    step()
    position = save()
    assert position.dtype is sr.string
    rest = [step().numpy().tolist() for _ in range(3)]
    assert restore(position).numpy().tolist() == rest[0]
    assert step().numpy().tolist() == rest[1]
    # As bytes, and of another iterator.
    other = iter(Dataset.range(30).shuffle(5, seed=3).batch(3).prefetch(2))
    other.restore(position)
    assert [next(other).numpy().tolist() for _ in range(3)] == rest
    assert restore(other.save()).numpy() is not None


def test_a_call_may_go_back():
    @sr.function
    def twice():
        it = iter(Dataset.range(5))
        next(it)
        here = it.save()
        first = next(it)
        it.restore(here)
        return first, next(it)

    assert [int(x) for x in twice()] == [1, 1]


def test_what_is_no_position_is_refused_and_changes_nothing():
    it = iter(Dataset.range(50).shuffle(4, seed=1).prefetch(2))

    @sr.function
    def restore(position):
        it.restore(position)

    right = it.save()
    first = int(next(it))
    rng = np.random.default_rng(0)
    hostile = [b"", b"x", right[:-1], right + b"x", iter(Dataset.range(3)).save()]
    for _ in range(200):
        at = int(rng.integers(len(right)))
        hostile.append(right[:at] + bytes([int(rng.integers(256))]) + right[at + 1 :])
    refused = 0
    for position in hostile:
        try:
            restore(sr.constant(position))
        except errors.InvalidArgumentError:
            refused += 1
    assert refused > 50
    restore(sr.constant(right))
    assert int(next(it)) == first
    expected = int(next(it))
    it.restore(right)
    next(it)
    with pytest.raises(errors.InvalidArgumentError):
        restore(sr.constant(b"no position"))
    assert int(next(it)) == expected
    with pytest.raises(TypeError, match="save"):
        it.restore(5)


def test_sessions_save_and_restore():
    with v1.Graph().as_default():
        it = v1.data.make_one_shot_iterator(Dataset.range(9).batch(2))
        element, here = it.get_next(), it.save()
        position = v1.placeholder(sr.string, [])
        back = it.restore(position)
        with v1.Session() as session:
            session.run(element)
            saved = session.run(here)
            assert session.run(element).tolist() == [2, 3]
            session.run(back, {position: saved})
            assert session.run(element).tolist() == [2, 3]
            with pytest.raises(errors.InvalidArgumentError):
                session.run(back, {position: b"x"})
            assert session.run(element).tolist() == [4, 5]
