"""Datasets against plain Python: what each transformation gives, in which order, and errors."""

import itertools
import random

import numpy as np
import pytest

import sidereal as sr
import sidereal.v1 as v1
from sidereal import data, errors
from sidereal._dispatch import apply

Dataset = data.Dataset


def items(dataset):
    """The elements as plain Python."""
    return [plain(element) for element in dataset]


def plain(value):
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, Dataset):
        return items(value)
    return value.numpy().tolist()


# Sources.


def test_sources():
    assert items(Dataset.range(5)) == [0, 1, 2, 3, 4]
    assert items(Dataset.range(2, 10, 3)) == [2, 5, 8]
    assert items(Dataset.range(5, 0, -2, output_type=sr.float32)) == [5.0, 3.0, 1.0]
    assert items(Dataset.range(5, 0)) == []
    assert items(Dataset.from_tensors(([1, 2], 3))) == [([1, 2], 3)]
    assert items(Dataset.from_tensor_slices([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]
    assert items(Dataset.from_tensor_slices(["a", "bc"])) == [b"a", b"bc"]
    nested = {"b": (np.arange(2), np.array([[1.5], [2.5]])), "a": ["x", "y"]}
    assert items(Dataset.from_tensor_slices(nested)) == [
        {"b": (0, [1.5]), "a": b"x"},
        {"b": (1, [2.5]), "a": b"y"},
    ]


def test_element_specs_say_what_is_known():
    ds = Dataset.from_tensor_slices((np.zeros((6, 2), np.float32), ["x"] * 6))
    assert ds.element_spec == (sr.TensorSpec((2,), sr.float32), sr.TensorSpec((), sr.string))
    assert ds.batch(4).element_spec[0] == sr.TensorSpec((None, 2), sr.float32)
    assert ds.batch(4, drop_remainder=True).element_spec[0] == sr.TensorSpec((4, 2), sr.float32)
    mapped = ds.map(lambda x, s: {"sum": sr.reduce_sum(x), "s": s})
    assert mapped.element_spec == {
        "sum": sr.TensorSpec((), sr.float32),
        "s": sr.TensorSpec((), sr.string),
    }
    assert Dataset.range(3).window(2).element_spec == data.DatasetSpec(sr.TensorSpec((), sr.int64))


def test_sources_refuse_what_makes_no_rows():
    with pytest.raises(errors.InvalidArgumentError, match="scalar"):
        Dataset.from_tensor_slices(3)
    with pytest.raises(errors.InvalidArgumentError, match="2 rows, those before it have 3"):
        Dataset.from_tensor_slices(([1, 2, 3], [1, 2]))
    with pytest.raises(errors.InvalidArgumentError, match="step is 0"):
        iter(Dataset.range(0, 5, 0))


# Generators.


def test_generators_begin_anew_in_each_iteration():
    def count(limit):
        yield from ((i, "x" * i) for i in range(limit))

    ds = Dataset.from_generator(
        count,
        output_signature=(sr.TensorSpec((), sr.int32), sr.TensorSpec((), sr.string)),
        args=(3,),
    )
    assert items(ds) == items(ds.prefetch(2)) == [(0, b""), (1, b"x"), (2, b"xx")]
    assert len(items(ds.repeat(2))) == 6
    old = Dataset.from_generator(lambda: iter([[1], [2, 3]]), sr.int64, (None,))
    assert items(old) == [[1], [2, 3]]


def test_errors_of_generators_are_raised_and_name_what_was_given():
    def broken():
        yield 1
        raise ValueError("it broke")

    ds = Dataset.from_generator(broken, output_signature=sr.TensorSpec((), sr.int32))
    for one in (ds, ds.prefetch(4)):
        it = iter(one)
        assert next(it).numpy() == 1
        with pytest.raises(errors.InvalidArgumentError, match="it broke"):
            next(it)
        with pytest.raises(StopIteration):
            next(it)
    wrong = Dataset.from_generator(
        lambda: [np.zeros(3)], output_signature=sr.TensorSpec((2,), sr.float64)
    )
    with pytest.raises(errors.InvalidArgumentError, match=r"shape \(3,\)"):
        next(iter(wrong))


def test_a_dataset_with_python_code_cannot_leave_the_process():
    ds = Dataset.from_generator(lambda: [1], output_signature=sr.TensorSpec((), sr.int32))
    with pytest.raises(errors.FailedPreconditionError, match="generator is Python code"):
        ds.batch(2).serialize()
    mapped = Dataset.range(3).map(lambda x: sr.py_function(lambda v: v + 1, [x], sr.int64))
    with pytest.raises(errors.FailedPreconditionError, match="Python code"):
        mapped.serialize()


# Functions.


def test_functions_of_elements():
    pairs = Dataset.from_tensor_slices((np.arange(4), np.arange(4) * 10))
    assert items(pairs.map(lambda a, b: a + b)) == [0, 11, 22, 33]
    assert items(pairs.map(lambda a, b: {"d": b - a, "one": 1})) == [
        {"d": 9 * i, "one": 1} for i in range(4)
    ]
    assert items(Dataset.range(3).map(lambda x: [x, x])) == [[0, 0], [1, 1], [2, 2]]
    evens = Dataset.range(10).filter(lambda x: sr.equal(x % 2, 0))
    assert items(evens) == [0, 2, 4, 6, 8]
    assert items(Dataset.range(10).take_while(lambda x: x < 4)) == [0, 1, 2, 3]
    assert Dataset.range(10).reduce(np.int64(0), lambda s, x: s + x).numpy() == 45
    total, count = pairs.reduce(
        (np.int64(0), np.int64(0)), lambda state, ab: (state[0] + ab[1], state[1] + 1)
    )
    assert (total.numpy(), count.numpy()) == (60, 4)
    assert items(Dataset.range(3).apply(lambda ds: ds.map(lambda x: x * x))) == [0, 1, 4]


def test_functions_use_what_is_outside():
    weights = sr.constant([1.0, 2.0, 3.0])
    scale = sr.Variable(10.0)
    ds = Dataset.range(3).map(lambda i: sr.gather(weights, i) * scale)
    assert items(ds) == [10.0, 20.0, 30.0]
    scale.assign(100.0)
    assert items(ds.repeat(2).prefetch(1)) == [100.0, 200.0, 300.0] * 2
    nested = Dataset.range(2).flat_map(lambda i: Dataset.range(2).map(lambda j: scale + 1.0))
    scale.assign(1.0)
    assert items(nested) == [2.0] * 4
    table = sr.lookup.StaticHashTable(
        sr.lookup.KeyValueTensorInitializer(["a", "b"], np.array([1, 2])), -1
    )
    words = Dataset.from_tensor_slices(["b", "x", "a"]).map(table.lookup)
    assert items(words) == [2, -1, 1]


def test_a_parallel_map_keeps_the_order():
    ds = Dataset.range(1000).map(lambda x: x * 3, num_parallel_calls=4)
    assert items(ds) == [3 * i for i in range(1000)]
    auto = Dataset.range(100).map(lambda x: x + 1, num_parallel_calls=data.AUTOTUNE)
    assert items(auto.prefetch(data.AUTOTUNE)) == list(range(1, 101))


@pytest.mark.parametrize("threads", [None, 3])
def test_an_error_of_one_element_does_not_end_the_others(threads):
    ds = Dataset.range(4).map(lambda x: 6 // sr.cast(x, sr.int32), num_parallel_calls=threads)
    it = iter(ds)
    with pytest.raises(errors.InvalidArgumentError):
        next(it)
    assert items(it) == [6, 3, 2]


def test_python_functions_run_on_the_threads_of_a_dataset():
    seen = []

    def note(x):
        seen.append(int(x))
        return x * 2

    ds = Dataset.range(5).map(
        lambda x: sr.numpy_function(note, [x], sr.int64), num_parallel_calls=2
    )
    assert items(ds.prefetch(1)) == [0, 2, 4, 6, 8]
    assert sorted(seen) == [0, 1, 2, 3, 4]


def test_functions_that_give_datasets():
    assert items(Dataset.range(4).flat_map(Dataset.range)) == [0, 0, 1, 0, 1, 2]
    nested = Dataset.range(1, 4).flat_map(
        lambda n: Dataset.range(n).flat_map(lambda m: Dataset.from_tensors(m * 10 + n))
    )
    assert items(nested) == [m * 10 + n for n in range(1, 4) for m in range(n)]
    rows = Dataset.from_tensor_slices([[1, 2], [3, 4]]).flat_map(Dataset.from_tensor_slices)
    assert items(rows) == [1, 2, 3, 4]
    # The example of TensorFlow's page.
    ds = Dataset.range(1, 6).interleave(
        lambda x: Dataset.from_tensors(x).repeat(6), cycle_length=2, block_length=4
    )
    expected = [1] * 4 + [2] * 4 + [1] * 2 + [2] * 2 + [3] * 4 + [4] * 4 + [3] * 2 + [4] * 2
    assert items(ds) == expected + [5] * 6
    parallel = Dataset.range(1, 6).interleave(
        lambda x: Dataset.from_tensors(x).repeat(6), 2, 4, num_parallel_calls=2
    )
    assert items(parallel) == items(ds)
    with pytest.raises(TypeError, match="must return a Dataset"):
        Dataset.range(3).flat_map(lambda x: x)


def test_windows():
    def windows(*args, **kwargs):
        return items(Dataset.range(7).window(*args, **kwargs))

    assert windows(3) == [[0, 1, 2], [3, 4, 5], [6]]
    assert windows(3, drop_remainder=True) == [[0, 1, 2], [3, 4, 5]]
    assert windows(3, 1, drop_remainder=True) == [[i, i + 1, i + 2] for i in range(5)]
    assert windows(3, 2, 2, True) == [[0, 2, 4], [2, 4, 6]]
    assert windows(2, 5) == [[0, 1], [5, 6]]
    pairs = Dataset.from_tensor_slices({"a": np.arange(4), "b": np.arange(4) * 2}).window(2)
    assert items(pairs) == [{"a": [0, 1], "b": [0, 2]}, {"a": [2, 3], "b": [4, 6]}]
    joined = pairs.flat_map(lambda w: Dataset.zip((w["a"].batch(2), w["b"].batch(2))))
    assert items(joined) == [([0, 1], [0, 2]), ([2, 3], [4, 6])]
    sums = Dataset.range(6).window(3).flat_map(lambda w: w.batch(3)).map(sr.reduce_sum)
    assert items(sums) == [3, 12]
    with pytest.raises(errors.InvalidArgumentError, match="flat_map"):
        Dataset.range(6).window(3).map(lambda w: 1)


# Batches.


def test_batches():
    assert items(Dataset.range(8).batch(3)) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert items(Dataset.range(8).batch(3, drop_remainder=True)) == [[0, 1, 2], [3, 4, 5]]
    assert items(Dataset.range(8).batch(3).unbatch()) == list(range(8))
    assert items(Dataset.range(6).batch(3).rebatch(2)) == [[0, 1], [2, 3], [4, 5]]
    words = Dataset.from_tensor_slices(["a", "bb", "c"]).batch(2)
    assert items(words) == [[b"a", b"bb"], [b"c"]]
    ragged = Dataset.range(1, 4).map(lambda n: sr.fill([n], n))
    with pytest.raises(errors.InvalidArgumentError, match="Cannot batch tensors with different"):
        next(iter(ragged.batch(2)))
    with pytest.raises(errors.InvalidArgumentError, match="must be positive"):
        Dataset.range(3).batch(0)


def test_padded_batches():
    rows = Dataset.range(1, 5).map(lambda n: sr.fill([n], n))
    assert items(rows.padded_batch(3)) == [[[1, 0, 0], [2, 2, 0], [3, 3, 3]], [[4, 4, 4, 4]]]
    fixed = rows.padded_batch(2, padded_shapes=[5], padding_values=-1)
    assert items(fixed)[0] == [[1, -1, -1, -1, -1], [2, 2, -1, -1, -1]]
    assert fixed.element_spec == sr.TensorSpec((None, 5), sr.int64)
    with pytest.raises(errors.InvalidArgumentError, match="cannot be cut"):
        items(rows.padded_batch(4, padded_shapes=[2]))
    texts = Dataset.from_generator(
        lambda: [(["a"], 1.0), (["b", "c"], 2.0)],
        output_signature=(sr.TensorSpec((None,), sr.string), sr.TensorSpec((), sr.float32)),
    )
    padded = texts.padded_batch(2, padding_values=("-", 0.0))
    assert items(padded) == [([[b"a", b"-"], [b"b", b"c"]], [1.0, 2.0])]


@pytest.mark.parametrize("seed", range(5))
def test_padding_of_any_rank_is_that_of_numpy(seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(0, 4))
    arrays = [rng.normal(size=rng.integers(0, 4, rank)) for _ in range(5)]
    extents = [max(a.shape[d] for a in arrays) for d in range(rank)]
    expected = np.full([5, *extents], 7.0)
    for i, array in enumerate(arrays):
        expected[(i, *(slice(n) for n in array.shape))] = array
    ds = Dataset.from_generator(
        lambda: arrays, output_signature=sr.TensorSpec((None,) * rank, sr.float64)
    )
    (batch,) = ds.padded_batch(5, padding_values=np.float64(7.0))
    np.testing.assert_array_equal(batch.numpy(), expected)


# Order and number.


def test_order_and_number():
    ds = Dataset.range(5)
    assert items(ds.take(2)) == [0, 1]
    assert items(ds.take(-1)) == items(ds.take(9)) == items(ds)
    assert items(ds.skip(3)) == [3, 4]
    assert items(ds.skip(-1)) == items(ds.skip(9)) == []
    assert items(ds.repeat(2)) == [*range(5), *range(5)]
    assert items(ds.repeat(0)) == []
    assert items(ds.repeat().take(12)) == [i % 5 for i in range(12)]
    assert items(Dataset.range(0).repeat()) == []
    assert items(ds.shard(2, 1)) == [1, 3]
    assert items(ds.concatenate(Dataset.range(7, 9))) == [0, 1, 2, 3, 4, 7, 8]
    assert items(ds.enumerate(start=3).take(2)) == [(3, 0), (4, 1)]
    zipped = Dataset.zip({"a": ds, "b": (ds.skip(1), ds.skip(2))})
    assert items(zipped) == [{"a": i, "b": (i + 1, i + 2)} for i in range(3)]
    assert items(Dataset.zip(ds, ds.skip(3))) == [(0, 3), (1, 4)]
    with pytest.raises(errors.InvalidArgumentError, match="index"):
        ds.shard(2, 2)
    with pytest.raises(errors.InvalidArgumentError, match="cannot follow"):
        ds.concatenate(Dataset.from_tensors("x"))


def test_cardinality():
    ds = Dataset.range(10)
    assert [len(x) for x in (ds, ds.batch(3), ds.batch(3, True), ds.take(4), ds.skip(4))] == [
        10, 4, 3, 4, 6
    ]
    assert len(ds.repeat(3).shard(4, 1)) == 8
    assert len(Dataset.zip(ds, ds.repeat())) == 10
    assert ds.repeat().cardinality().numpy() == data.INFINITE_CARDINALITY
    assert ds.filter(lambda x: x > 1).cardinality().numpy() == data.UNKNOWN_CARDINALITY
    with pytest.raises(TypeError, match="infinite"):
        len(ds.repeat())


def test_shuffles():
    ds = Dataset.range(100)
    once = ds.shuffle(20, seed=3)
    first, second = items(once), items(once)
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second != list(range(100))
    # An element is drawn from the buffer.
    assert all(value < position + 20 for position, value in enumerate(first))
    assert items(ds.shuffle(20, seed=3)) == first
    assert items(ds.shuffle(20, seed=4)) != first
    fixed = ds.shuffle(20, seed=3, reshuffle_each_iteration=False)
    assert items(fixed) == items(fixed)
    twice = items(ds.shuffle(100, seed=1).repeat(2))
    assert sorted(twice[:100]) == list(range(100))
    assert twice[:100] != twice[100:]
    unseeded = [items(ds.shuffle(100)) for _ in range(2)]
    assert unseeded[0] != unseeded[1]
    sr.random.set_seed(7)
    seeded = items(ds.shuffle(100))
    sr.random.set_seed(7)
    assert items(ds.shuffle(100)) == seeded
    sr.random.set_seed(None)
    with pytest.raises(errors.InvalidArgumentError, match="buffer_size"):
        iter(ds.shuffle(0))


def test_random_numbers():
    numbers = items(Dataset.random(seed=4).take(50))
    assert len(set(numbers)) == 50
    assert all(0 <= number < 1 << 32 for number in numbers)
    assert items(Dataset.random(seed=4).take(50)) == numbers
    noise = Dataset.range(9).map(lambda _: sr.random.uniform(()), num_parallel_calls=3)
    assert len(set(items(noise) + items(noise))) == 18


def test_options_are_kept():
    options = data.Options()
    options.experimental_distribute.auto_shard_policy = data.experimental.AutoShardPolicy.DATA
    options.threading.private_threadpool_size = 2
    ds = Dataset.range(3).with_options(options).batch(2)
    assert ds.options() is options
    assert items(ds) == [[0, 1], [2]]


def test_a_cache_runs_what_is_before_it_once():
    calls = []

    def count():
        for i in range(3):
            calls.append(i)
            yield i

    ds = Dataset.from_generator(count, output_signature=sr.TensorSpec((), sr.int64)).cache()
    assert items(ds.take(2)) == [0, 1]  # Not a whole one: nothing is kept.
    assert items(ds.repeat(2)) == [0, 1, 2, 0, 1, 2]
    assert items(ds) == [0, 1, 2]
    assert calls == [0, 1, 0, 1, 2]


# Iterators.


def test_the_end_of_an_iterator():
    it = iter(Dataset.range(1))
    assert it.get_next().numpy() == 0
    for _ in range(2):
        with pytest.raises(errors.OutOfRangeError, match="End of sequence"):
            it.get_next()
        with pytest.raises(StopIteration):
            next(it)


def test_a_closed_iterator_ends_its_threads():
    it = iter(Dataset.range(10).repeat().map(lambda x: x, num_parallel_calls=2).prefetch(3))
    next(it)
    it.close()
    with pytest.raises(errors.CancelledError):
        next(it)


PIPELINES = {
    "range": lambda: Dataset.range(20),
    "shuffle": lambda: Dataset.range(20).shuffle(7, seed=5).repeat(2),
    "batch": lambda: Dataset.range(20).batch(3).unbatch().skip(1).take(17),
    "ahead": lambda: Dataset.range(40).map(lambda x: x * 2, num_parallel_calls=3).prefetch(5),
    "random": lambda: Dataset.range(10).map(lambda x: sr.random.uniform((), seed=4)),
    "interleave": lambda: Dataset.range(1, 6).interleave(
        lambda x: Dataset.range(x, x + 4).shuffle(3, seed=2), 3, 2, num_parallel_calls=2
    ),
    "window": lambda: Dataset.range(12).window(3, 2).flat_map(lambda w: w.batch(3)),
    "zip": lambda: Dataset.zip(
        Dataset.range(9).concatenate(Dataset.range(5)), Dataset.range(30).shard(2, 1)
    ),
    "filter": lambda: Dataset.range(30).filter(lambda x: x % 3 < 1).take_while(lambda x: x < 25),
    "cache": lambda: Dataset.range(6).cache().repeat(3),
    "strings": lambda: Dataset.from_tensor_slices([f"w{i}" for i in range(9)]).shuffle(4, seed=1),
    "generator": lambda: Dataset.from_generator(
        lambda: range(9), output_signature=sr.TensorSpec((), sr.int32)
    ).prefetch(2),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_position_is_where_the_rest_follows(name):
    expected = items(PIPELINES[name]())
    for read in {0, 1, 5, len(expected) - 1, len(expected)}:
        it = iter(PIPELINES[name]())
        before = [plain(next(it)) for _ in range(read)]
        position = it.save()
        assert before + items(it) == expected
        other = iter(PIPELINES[name]())
        other.restore(position)
        assert items(other) == expected[read:], read


def test_positions_of_others_are_refused():
    position = iter(Dataset.range(20)).save()
    with pytest.raises(errors.InvalidArgumentError, match="another dataset"):
        iter(Dataset.range(20).batch(2)).restore(position)
    with pytest.raises(errors.DataLossError):
        iter(Dataset.range(20)).restore(b"")
    it = iter(PIPELINES["shuffle"]())
    next(it)
    position = it.save()
    rng = random.Random(1)
    for _ in range(300):
        broken = bytearray(position)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        other = iter(PIPELINES["shuffle"]())
        try:
            other.restore(bytes(broken[: rng.randrange(len(broken) + 1)]))
            list(itertools.islice(other, 50))
        except errors.Error:
            pass


# Definitions.


@pytest.mark.parametrize("name", [name for name in PIPELINES if name != "generator"])
def test_a_definition_is_the_same_after_its_way_as_text(name):
    ds = PIPELINES[name]()
    text = ds.serialize()
    back = Dataset.deserialize(text, ds.element_spec)
    assert back.element_spec == ds.element_spec
    assert items(back) == items(PIPELINES[name]())
    assert back.serialize() == text


def test_hostile_definitions_are_refused():
    text = PIPELINES["interleave"]().serialize()
    rng = random.Random(2)
    for _ in range(300):
        broken = list(text)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(len(broken))] = chr(rng.randrange(32, 127))
        try:
            ds = Dataset.deserialize("".join(broken))
            list(itertools.islice(ds, 20))
        except (errors.Error, ValueError):
            pass


# Text and records.


def test_lines_of_files(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    (tmp_path / "b.txt").write_text("three")
    names = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    assert items(data.TextLineDataset(names)) == [b"one", b"", b"two", b"three"]
    listed = Dataset.list_files(str(tmp_path / "*.txt"), shuffle=False)
    assert items(listed.flat_map(data.TextLineDataset)) == [b"one", b"", b"two", b"three"]
    turns = listed.interleave(data.TextLineDataset, cycle_length=2)
    assert items(turns) == [b"one", b"three", b"", b"two"]
    it = iter(data.TextLineDataset(names))
    next(it), next(it)
    other = iter(data.TextLineDataset(names))
    other.restore(it.save())
    assert items(other) == [b"two", b"three"]
    with pytest.raises(errors.NotFoundError, match="no such file"):
        next(iter(data.TextLineDataset(str(tmp_path / "none"))))


@pytest.mark.parametrize("options", [None, "GZIP"])
def test_records_of_examples(tmp_path, options):
    path = tmp_path / "records"
    with sr.io.TFRecordWriter(path, options) as writer:
        for i in range(3):
            writer.write(sr.io.encode_example({"x": i, "y": float(i)}))
    features = {
        "x": sr.io.FixedLenFeature((), sr.int64),
        "y": sr.io.FixedLenFeature((), sr.float32),
    }
    parsed = data.TFRecordDataset(path).map(lambda e: sr.io.parse_single_example(e, features))
    assert items(parsed) == [{"x": i, "y": float(i)} for i in range(3)]
    batches = data.TFRecordDataset([path]).batch(2)
    assert items(batches.map(lambda e: sr.io.parse_example(e, features))) == [
        {"x": [0, 1], "y": [0.0, 1.0]},
        {"x": [2], "y": [2.0]},
    ]
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(errors.DataLossError, match=str(path)):
        items(data.TFRecordDataset(path))


def test_rows_of_click_logs(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("label,n,c\n" + "".join(f"{i % 2},{i}.5,k{i}\n" for i in range(5)))
    spec = data.csv(path, numeric=["n"], numeric_transform="none", shuffle_rows=0)
    ds = Dataset.from_spec(spec, batch_size=2)
    assert set(ds.element_spec) == {"label", "dense", "ids"}
    batches = list(ds)
    assert [plain(b["label"]) for b in batches] == [[0.0, 1.0], [0.0, 1.0], [0.0]]
    assert plain(batches[1]["dense"]) == [[2.5], [3.5]]
    it = iter(ds)
    next(it)
    other = iter(ds)
    other.restore(it.save())
    assert [plain(b["dense"]) for b in other] == [plain(b["dense"]) for b in batches[1:]]
    assert items(Dataset.deserialize(ds.serialize(), ds.element_spec)) == items(ds)
    sparse = tmp_path / "rows.svm"
    sparse.write_text("1 3:0.5 7:2\n0 1:1\n")
    (batch,) = Dataset.from_spec(data.libsvm(sparse, id_space=10, shuffle_rows=0), 8)
    assert plain(batch["ids"]) == [[3, 7], [1, -1]]
    assert plain(batch["weights"]) == [[0.5, 2.0], [1.0, 0.0]]


def test_datasets_feed_functions():
    w = sr.Variable([0.0, 0.0])

    @sr.function
    def step(x, y):
        error = sr.reduce_sum(x * w, axis=1) - y
        w.assign_sub(0.1 * sr.reduce_mean(x * sr.expand_dims(error, 1), axis=0))
        return sr.reduce_mean(error * error)

    rng = np.random.default_rng(0)
    x = rng.normal(size=(256, 2)).astype(np.float32)
    ds = Dataset.from_tensor_slices((x, x @ np.float32([2.0, -1.0])))
    for features, label in ds.shuffle(256, seed=1).batch(32).repeat(60).prefetch(data.AUTOTUNE):
        loss = step(features, label)
    assert float(loss) < 1e-3
    np.testing.assert_allclose(w.numpy(), [2.0, -1.0], atol=0.05)


def test_a_dataset_cannot_be_iterated_while_a_function_is_traced():
    @sr.function
    def total():
        return sum(Dataset.range(3))

    with pytest.raises(errors.UnimplementedError, match="traced"):
        total()


# In functions and sessions.


def test_functions_take_elements_of_an_iterator():
    it = iter(Dataset.range(4).map(lambda x: (x, {"square": x * x})))

    @sr.function
    def step(factor):
        x, more = next(it)
        return x * factor + more["square"]

    assert step(sr.constant(np.int64(10))).numpy() == 0
    assert step(sr.constant(np.int64(10))).numpy() == 11
    assert plain(next(it)) == (2, {"square": 4})
    position = it.save()
    assert step(sr.constant(np.int64(10))).numpy() == 39
    for _ in range(2):
        with pytest.raises(errors.OutOfRangeError, match="End of sequence"):
            step(sr.constant(np.int64(10)))
    other = iter(Dataset.range(4).map(lambda x: (x, {"square": x * x})))
    other.restore(position)
    assert items(other) == [(3, {"square": 9})]


def test_functions_wait_for_python_generators():
    ds = Dataset.from_generator(lambda: range(3), output_signature=sr.TensorSpec((), sr.int32))
    it = iter(ds.prefetch(2))

    @sr.function
    def step():
        return it.get_next() + 1

    assert [step().numpy() for _ in range(3)] == [1, 2, 3]


def test_sessions_take_elements_of_an_iterator():
    ds = Dataset.range(6).shuffle(6, seed=3).batch(4)
    expected = items(ds)
    with v1.Graph().as_default():
        again = Dataset.range(6).shuffle(6, seed=3).batch(4)
        batch = v1.data.make_one_shot_iterator(again).get_next()
        assert batch.shape == (-1,)
        with v1.Session() as session:
            assert [session.run(batch).tolist() for _ in range(2)] == expected
            with pytest.raises(errors.OutOfRangeError):
                session.run(batch)
        local = Dataset.from_generator(lambda: [1], output_signature=sr.TensorSpec((), sr.int32))
        with pytest.raises(errors.FailedPreconditionError, match="Python code"):
            v1.data.make_one_shot_iterator(local)


def test_hostile_definitions_are_refused_in_sessions():
    with v1.Graph().as_default() as graph, graph.building():
        handle = apply("DatasetIterator", (), {"shared_name": "x", "definition": "no graph"})
        with v1.Session() as session, pytest.raises(errors.InvalidArgumentError):
            session.run(handle)


def test_columns_of_csv_files(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('n,t\n1,x\n,"y,z"\n')
    assert items(data.CsvDataset(path, [7, sr.string], header=True)) == [(1, b"x"), (7, b"y,z")]
    one = data.CsvDataset([str(path)], [sr.string], header=True, select_cols=[1])
    assert items(one) == [(b"x",), (b"y,z",)]


def test_ragged_batches():
    rows = Dataset.from_generator(
        lambda: [([1, 2], 1), ([], 2), ([3], 3)],
        output_signature=(sr.TensorSpec((None,), sr.int32), sr.TensorSpec((), sr.int32)),
    )
    batches = list(rows.ragged_batch(2))
    assert plain(batches[0]) == (([1, 2], [0, 2, 2]), [1, 2])
    assert plain(batches[1]) == (([3], [0, 1]), [3])
    assert isinstance(batches[0][0], sr.RaggedTensor)
    lengths = rows.ragged_batch(3).map(lambda r, _: r.row_splits[1:] - r.row_splits[:-1])
    assert items(lengths) == [[2, 0, 1]]
