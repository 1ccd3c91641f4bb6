"""Queues, accumulators, tables and functions of Python: at once, in functions, in v1 graphs."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sidereal as sr
from sidereal import accumulators, v1
from sidereal._dispatch import ENGINE, apply


@pytest.fixture(autouse=True)
def short_timeout() -> Iterator[None]:
    sr.config.set_operation_timeout(30)
    yield
    sr.config.set_operation_timeout(600)


class Thread(threading.Thread):
    """Runs a function; join() gives its result or raises what it raised."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.function = function
        self.result: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.function()
        except BaseException as error:  # noqa: BLE001 - raised again by join().
            self.error = error

    def value(self) -> Any:
        self.join(60)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


def test_a_queue_gives_out_in_order_what_was_put_in() -> None:
    queue = sr.queue.FIFOQueue(10, [sr.int32, sr.string], shapes=[(), (2,)])
    queue.enqueue((1, ["a", "b"]))
    queue.enqueue_many(([2, 3], [["c", "d"], ["e", "f"]]))
    assert int(queue.size()) == 3
    number, text = queue.dequeue()
    assert int(number) == 1 and text.numpy().tolist() == [b"a", b"b"]
    numbers, texts = queue.dequeue_many(2)
    assert numbers.numpy().tolist() == [2, 3]
    assert texts.numpy().tolist() == [[b"c", b"d"], [b"e", b"f"]]
    assert queue.dequeue_up_to(0)[0].shape == (0,)


def test_names_make_elements_dicts() -> None:
    queue = sr.queue.FIFOQueue(-1, [sr.float32, sr.int64], names=["x", "n"])
    queue.enqueue({"x": 1.5, "n": 2})
    element = queue.dequeue()
    assert float(element["x"]) == 1.5 and int(element["n"]) == 2
    with pytest.raises(ValueError, match="keys"):
        queue.enqueue({"x": 1.5})


def test_what_waits_lets_other_threads_run() -> None:
    queue = sr.queue.FIFOQueue(2, sr.int64, shapes=())
    producer = Thread(lambda: queue.enqueue_many(np.arange(100)))
    total = sum(int(queue.dequeue()) for _ in range(100))
    producer.value()
    assert total == 4950
    consumer = Thread(queue.dequeue)
    queue.enqueue(7)
    assert int(consumer.value()) == 7


def test_a_wait_that_nobody_ends_names_the_queue() -> None:
    sr.config.set_operation_timeout(0.05)
    queue = sr.queue.FIFOQueue(1, sr.int64, name="empty")
    with pytest.raises(sr.errors.DeadlineExceededError, match=r"queue 'empty_\d+' \(0 elements"):
        queue.dequeue()
    queue.enqueue(1)
    with pytest.raises(sr.errors.DeadlineExceededError, match="room in queue"):
        queue.enqueue(2)
    assert int(queue.size()) == 1


def test_a_closed_queue_ends_its_requests() -> None:
    queue = sr.queue.FIFOQueue(5, sr.int64, shapes=())
    waiting = Thread(lambda: queue.dequeue_many(3))
    queue.enqueue(1)
    queue.close()
    assert bool(queue.is_closed())
    with pytest.raises(sr.errors.OutOfRangeError, match="closed"):
        waiting.value()
    with pytest.raises(sr.errors.CancelledError, match="closed"):
        queue.enqueue(2)
    assert int(queue.dequeue()) == 1


def test_a_queue_that_is_gone_ends_its_requests() -> None:
    queue = sr.queue.FIFOQueue(5, sr.int64, shared_name="shared_and_gone")
    waiting = Thread(queue.dequeue)
    same = sr.queue.FIFOQueue(5, sr.int64, shared_name="shared_and_gone")
    same.enqueue(3)
    assert int(waiting.value()) == 3
    waiting = Thread(queue.dequeue)
    while not ENGINE.erase_resource("shared_and_gone"):
        pass
    with pytest.raises((sr.errors.CancelledError, sr.errors.NotFoundError)):
        waiting.value()


def test_other_kinds_of_queues() -> None:
    padding = sr.queue.PaddingFIFOQueue(10, [sr.int32], shapes=[(None,)])
    for row in ([1], [2, 3], []):
        padding.enqueue(np.array(row, np.int32))
    assert padding.dequeue_many(3).numpy().tolist() == [[1, 0], [2, 3], [0, 0]]
    priority = sr.queue.PriorityQueue(10, sr.string, shapes=())
    for key, value in ((3, "c"), (1, "a"), (2, "b")):
        priority.enqueue((key, value))
    assert [priority.dequeue()[1].numpy().item() for _ in range(3)] == [b"a", b"b", b"c"]
    shuffled = sr.queue.RandomShuffleQueue(100, 0, sr.int64, shapes=(), seed=3)
    shuffled.enqueue_many(np.arange(50))
    drawn = shuffled.dequeue_many(50).numpy().tolist()
    assert drawn != list(range(50)) and sorted(drawn) == list(range(50))


def test_wrong_elements_and_definitions_are_refused() -> None:
    queue = sr.queue.FIFOQueue(3, [sr.int32], shapes=[(2,)])
    with pytest.raises(sr.errors.InvalidArgumentError, match=r"shape \[2\]"):
        queue.enqueue(([1, 2, 3],))
    with pytest.raises(ValueError, match="1 components; 2"):
        queue.enqueue(([1, 2], [3, 4]))
    with pytest.raises(ValueError, match="2 shapes"):
        sr.queue.FIFOQueue(3, [sr.int32], shapes=[(2,), ()])
    with pytest.raises(sr.errors.InvalidArgumentError, match="without shapes"):
        sr.queue.FIFOQueue(3, [sr.int32]).dequeue_many(2)


def test_functions_run_effects_in_order_wanted_or_not() -> None:
    queue = sr.queue.FIFOQueue(-1, sr.float32, shapes=())

    @sr.function
    def step(x: sr.Tensor) -> sr.Tensor:
        queue.enqueue(x)
        queue.enqueue(x * 2.0)

        def body(i: sr.Tensor) -> sr.Tensor:
            queue.enqueue(sr.cast(i, sr.float32))
            return i + 1

        sr.while_loop(lambda i: i < 3, body, [sr.constant(0)])
        sr.cond(x > 4.0, lambda: [queue.enqueue(100.0), x][1], lambda: x)
        return queue.dequeue() + 1.0

    assert float(step(sr.constant(5.0))) == 6.0
    assert [float(queue.dequeue()) for _ in range(5)] == [10.0, 0.0, 1.0, 2.0, 100.0]
    step(sr.constant(1.0))
    assert int(queue.size()) == 4


def test_a_function_that_waits_can_be_called_by_others_meanwhile() -> None:
    queue = sr.queue.FIFOQueue(-1, sr.float32, shapes=())

    @sr.function
    def twice(x: sr.Tensor) -> sr.Tensor:
        return queue.dequeue() * x

    queue.enqueue(1.0)
    assert float(twice(sr.constant(2.0))) == 2.0
    waiting = [Thread(lambda x=x: float(twice(sr.constant(x)))) for x in (2.0, 3.0)]
    queue.enqueue_many(([10.0, 10.0],))
    assert sorted(thread.value() for thread in waiting) == [20.0, 30.0]


def test_v1_graphs_have_operations_for_queues() -> None:
    graph = v1.Graph()
    with graph.as_default():
        queue = v1.FIFOQueue(3, [v1.int32], shapes=[()])
        value = v1.placeholder(v1.int32, ())
        put = queue.enqueue([value])
        get = queue.dequeue()
        size = queue.size()
        session = v1.Session()
        assert session.run(put, {value: 4}) is None
        session.run(put, {value: 5})
        assert session.run([get, size])[0] == 4
        assert session.run(get) == 5
        begun = threading.Event()
        with v1.control_dependencies([v1.py_function(begun.set, [], [])]):
            late = queue.dequeue()
        waiting = Thread(lambda: session.run(late))
        begun.wait(60)
        session.close()
        with pytest.raises(sr.errors.CancelledError, match="Session::Close"):
            waiting.value()


def test_accumulators_average_a_step_and_drop_what_comes_late() -> None:
    dense = accumulators.ConditionalAccumulator(sr.float32, (2,))
    taken = Thread(lambda: dense.take_grad(2))
    dense.apply_grad([1.0, 2.0], local_step=0)
    dense.apply_grad([3.0, 6.0], local_step=0)
    assert taken.value().numpy().tolist() == [2.0, 4.0]
    dense.apply_grad([9.0, 9.0], local_step=0)
    assert int(dense.num_accumulated()) == 0
    dense.set_global_step(5)
    dense.apply_grad([1.0, 1.0], local_step=5)
    assert int(dense.num_accumulated()) == 1
    with pytest.raises(sr.errors.InvalidArgumentError, match="at least 1"):
        dense.take_grad(0)
    with pytest.raises(sr.errors.InvalidArgumentError, match="float32"):
        dense.apply_grad([1.0, 2.0, 3.0], local_step=5)


def test_sparse_accumulators_average_a_row_over_those_who_had_it() -> None:
    sparse = accumulators.SparseConditionalAccumulator(sr.float32, (4, 1))
    sparse.apply_indexed_slices_grad(sr.IndexedSlices([[1.0], [2.0]], [1, 2]))
    sparse.apply_grad([2, 3], [[4.0], [5.0]])
    grad = sparse.take_indexed_slices_grad(2)
    assert grad.indices.numpy().tolist() == [1, 2, 3]
    assert grad.values.numpy().tolist() == [[1.0], [3.0], [5.0]]


def test_static_tables_look_up_keys_of_any_shape() -> None:
    table = sr.lookup.StaticHashTable(
        sr.lookup.KeyValueTensorInitializer(["red", "green", ""], [10, 20, 30]), default_value=-1
    )
    keys = [["green", "blue"], ["", "red"]]
    assert table.lookup(keys).numpy().tolist() == [[20, -1], [30, 10]]
    assert int(table.size()) == 3

    @sr.function
    def find(x: sr.Tensor) -> sr.Tensor:
        return table[x] + 1

    assert find(sr.constant(keys)).numpy().tolist() == [[21, 0], [31, 11]]
    with pytest.raises(sr.errors.InvalidArgumentError, match="string"):
        table.lookup(sr.constant([1, 2]))
    with pytest.raises(sr.errors.InvalidArgumentError, match="twice"):
        sr.lookup.StaticHashTable(sr.lookup.KeyValueTensorInitializer(["a", "a"], [1, 2]), 0)


def test_two_tables_of_one_size_do_not_answer_for_each_other() -> None:
    tables = [
        sr.lookup.StaticHashTable(sr.lookup.KeyValueTensorInitializer([1, 2], ["a", "b"]), ""),
        sr.lookup.StaticHashTable(sr.lookup.KeyValueTensorInitializer([2, 1], ["c", "d"]), ""),
    ]
    for _ in range(3):
        assert tables[0].lookup([1]).numpy().tolist() == [b"a"]
        assert tables[1].lookup([1]).numpy().tolist() == [b"d"]


def test_tables_are_read_from_files(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(b"one\t1\r\ntwo\t2\nthree\t3\n")
    words = sr.lookup.TextFileInitializer(path, sr.string, 0, sr.int64, 1)
    assert sr.lookup.StaticHashTable(words, 0).lookup(["two", "four"]).numpy().tolist() == [2, 0]
    lines = sr.lookup.TextFileInitializer(
        path, sr.string, sr.lookup.TextFileIndex.WHOLE_LINE, sr.int64,
        sr.lookup.TextFileIndex.LINE_NUMBER, delimiter=" ", value_index_offset=5,
    )
    assert sr.lookup.StaticHashTable(lines, 0).lookup(["two\t2"]).numpy().tolist() == [6]
    with pytest.raises(sr.errors.InvalidArgumentError, match="line 1: b'one'"):
        sr.lookup.TextFileInitializer(path, sr.int64, 0, sr.int64, 1)
    with pytest.raises(sr.errors.InvalidArgumentError, match="column 2"):
        sr.lookup.TextFileInitializer(path, sr.string, 2, sr.int64, 1)
    with pytest.raises(sr.errors.NotFoundError, match="no file"):
        sr.lookup.TextFileInitializer(tmp_path / "none", sr.string, 0, sr.int64, 1)


def test_mutable_tables_change_between_steps() -> None:
    table = sr.lookup.experimental.MutableHashTable(sr.string, sr.float32, [0.0, 0.0])
    table.insert(["a", "b"], [[1.0, 2.0], [3.0, 4.0]])
    table.insert(["b"], [[5.0, 6.0]])

    @sr.function
    def find(x: sr.Tensor) -> sr.Tensor:
        return table.lookup(x) * 2.0

    assert find(sr.constant(["b", "c"])).numpy().tolist() == [[10.0, 12.0], [0.0, 0.0]]
    table.remove(["a", "z"])
    assert int(table.size()) == 1
    keys, values = table.export()
    assert keys.numpy().tolist() == [b"b"] and values.numpy().tolist() == [[5.0, 6.0]]


def test_python_runs_in_graphs_and_is_differentiated() -> None:
    calls = []

    def scaled(x: sr.Tensor, n: sr.Tensor) -> list[sr.Tensor]:
        calls.append(float(sr.reduce_sum(x)))
        return [x * x * sr.cast(n, sr.float32), n + 1]

    def loss(x: sr.Tensor, n: sr.Tensor) -> sr.Tensor:
        y, m = sr.py_function(scaled, [x, n], [sr.float32, sr.int32])
        return sr.reduce_sum(y) * sr.cast(m, sr.float32)

    for function in (loss, sr.function(loss)):
        x, n = sr.constant([1.0, 2.0]), sr.constant(3)
        with sr.GradientTape() as tape:
            tape.watch(x)
            y = function(x, n)
        assert float(y) == 60.0
        assert tape.gradient(y, x).numpy().tolist() == [24.0, 48.0]
    assert calls[:2] == [3.0, 3.0]


def test_numpy_functions_take_arrays() -> None:
    @sr.function
    def f(x: sr.Tensor) -> sr.Tensor:
        (made,) = sr.numpy_function(lambda a: np.sort(a)[::-1], [x], [sr.float32])
        return made + 1.0

    assert f(sr.constant([1.0, 3.0, 2.0])).numpy().tolist() == [4.0, 3.0, 2.0]


def test_what_python_raises_is_raised_where_the_graph_runs() -> None:
    def fails(x: sr.Tensor) -> sr.Tensor:
        raise KeyError("nothing there")

    @sr.function
    def f(x: sr.Tensor) -> sr.Tensor:
        return sr.py_function(fails, [x], sr.float32)

    with pytest.raises(KeyError, match="nothing there"):
        f(sr.constant(1.0))

    @sr.function
    def g(x: sr.Tensor) -> sr.Tensor:
        return sr.py_function(lambda v: sr.cast(v, sr.int32), [x], sr.float32)

    with pytest.raises(sr.errors.InvalidArgumentError, match="int32"):
        g(sr.constant(1.0))


def test_python_may_call_the_function_it_is_part_of() -> None:
    @sr.function
    def countdown(n: sr.Tensor) -> sr.Tensor:
        return sr.py_function(
            lambda v: v if int(v) == 0 else countdown(v - 1) + 1, [n], sr.int32
        )

    assert int(countdown(sr.constant(4))) == 4


class Doubler:
    """A function of Python that can be watched."""

    def __call__(self, x: sr.Tensor) -> sr.Tensor:
        return x * 2.0


def is_gone(seen: weakref.ref[object]) -> bool:
    gc.collect()
    return seen() is None


def test_python_goes_with_the_function_it_is_part_of() -> None:
    python = Doubler()
    seen = weakref.ref(python)
    x = sr.constant(3.0)

    @sr.function
    def inner(x: sr.Tensor, python: Doubler = python) -> sr.Tensor:
        return sr.py_function(python, [x], sr.float32)

    @sr.function
    def outer(x: sr.Tensor, inner: object = inner) -> sr.Tensor:
        return sr.cond(x > 0.0, lambda: inner(x), lambda: x)

    assert float(outer(x)) == 6.0
    del python, inner
    assert not is_gone(seen)
    assert float(outer(x)) == 6.0
    with sr.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = outer(x)
    del outer
    assert not is_gone(seen)
    assert float(tape.gradient(y, x)) == 2.0
    del tape, y
    assert is_gone(seen)


def test_python_that_knows_its_function_goes_as_well() -> None:
    class Model:
        def __init__(self) -> None:
            self.step = sr.function(lambda x: sr.py_function(self.double, [x], sr.float32))

        def double(self, x: sr.Tensor) -> sr.Tensor:
            return x * 2.0

    model = Model()
    assert float(model.step(sr.constant(2.0))) == 4.0
    seen = weakref.ref(model)
    del model
    assert is_gone(seen)


def test_python_goes_with_the_graph_of_sessions() -> None:
    graph = v1.Graph()
    with graph.as_default(), v1.Session() as session:
        python = Doubler()
        seen = weakref.ref(python)
        w = v1.Variable(2.0)
        y = v1.py_function(python, [v1.constant(1.0) * w], v1.float32)
        del python
        assert not is_gone(seen)
        session.run(w.initializer)
        assert session.run(y) == 4.0
    del graph, session, w, y
    assert is_gone(seen)


def test_what_lives_in_this_process_is_not_saved(tmp_path: Path) -> None:
    queue = sr.queue.FIFOQueue(-1, sr.float32, shapes=())

    @sr.function(input_signature=[sr.TensorSpec((), sr.float32)])
    def put(x: sr.Tensor) -> sr.Tensor:
        queue.enqueue(x)
        return x

    @sr.function(input_signature=[sr.TensorSpec((), sr.float32)])
    def python(x: sr.Tensor) -> sr.Tensor:
        return sr.py_function(lambda v: v, [x], sr.float32)

    for function in (put, python):
        with pytest.raises(sr.errors.FailedPreconditionError, match="lives in this process"):
            sr.saved_model.save(function, tmp_path / "model")


def test_static_tables_are_saved_with_the_functions_that_use_them(tmp_path: Path) -> None:
    table = sr.lookup.StaticHashTable(
        sr.lookup.KeyValueTensorInitializer(["red", "green"], [1, 2]), default_value=0
    )

    @sr.function(input_signature=[sr.TensorSpec((None,), sr.string)])
    def find(x: sr.Tensor) -> sr.Tensor:
        return table.lookup(x)

    sr.saved_model.save(find, tmp_path / "model")
    loaded = sr.saved_model.load(tmp_path / "model")
    assert loaded(sr.constant(["green", "blue"])).numpy().tolist() == [2, 0]


def test_vocabularies_number_what_they_do_not_know() -> None:
    words = sr.lookup.KeyValueTensorInitializer(["red", "green"], [0, 1], value_dtype=sr.int64)
    table = sr.lookup.StaticVocabularyTable(words, num_oov_buckets=3)
    found = table.lookup(["green", "blue", "blue", "mauve", "red"]).numpy()
    assert found[0] == 1 and found[4] == 0
    assert found[1] == found[2] and all(2 <= n < 5 for n in found[1:4])
    assert int(table.size()) == 5
    sparse = sr.sparse.SparseTensor([[0, 1], [2, 0]], ["red", "green"], [3, 2])
    assert table.lookup(sparse).values.numpy().tolist() == [0, 1]
    numbers = sr.lookup.KeyValueTensorInitializer(
        sr.constant([7, 9], sr.int64), sr.constant([0, 1], sr.int64)
    )
    by_number = sr.lookup.StaticVocabularyTable(numbers, 2)
    assert by_number.lookup(sr.constant([9, 8], sr.int64)).numpy()[0] == 1


def test_a_resource_that_is_destroyed_ends_what_waits_for_it() -> None:
    queue = sr.queue.FIFOQueue(3, ["float32"])
    waits = Thread(queue.dequeue)
    assert apply("DestroyResource", (queue.handle,)).numpy()
    with pytest.raises((sr.errors.CancelledError, sr.errors.NotFoundError)):
        waits.value()
    assert not apply("DestroyResource", (queue.handle,)).numpy()
