"""Datasets against those of TensorFlow: the same program gives the same elements."""

import numpy as np
import pytest

import sidereal as sr

tensorflow = pytest.importorskip("tensorflow")

X = np.arange(24, dtype=np.float32).reshape(12, 2)
Y = np.arange(12)


def ragged(tf):
    return tf.data.Dataset.range(1, 6).map(lambda n: tf.fill([n], n))


def pairs(tf):
    return tf.data.Dataset.from_tensor_slices((X, Y))


PROGRAMS = {
    "slices": lambda tf: tf.data.Dataset.from_tensor_slices({"x": X, "y": (Y, Y * 2)}),
    "lists": lambda tf: tf.data.Dataset.from_tensor_slices(([1, 2, 3], ["a", "b", "c"])),
    "tensors": lambda tf: tf.data.Dataset.from_tensors((X, "t")).repeat(2),
    "range": lambda tf: tf.data.Dataset.range(10, 0, -3),
    "batch": lambda tf: pairs(tf).batch(5),
    "batch, full": lambda tf: pairs(tf).batch(5, drop_remainder=True),
    "map": lambda tf: pairs(tf).map(lambda x, y: {"s": tf.reduce_sum(x), "y": y + 1}),
    "parallel map": lambda tf: pairs(tf).map(lambda x, y: x * 2.0, tf.data.AUTOTUNE).prefetch(2),
    "filter": lambda tf: pairs(tf).filter(lambda x, y: y % 3 < 1),
    "take while": lambda tf: tf.data.Dataset.range(9).take_while(lambda x: x < 5),
    "padded": lambda tf: ragged(tf).padded_batch(2),
    "padded to": lambda tf: ragged(tf).padded_batch(2, [6], np.int64(-1)),
    "unbatch": lambda tf: pairs(tf).batch(5).unbatch(),
    "rebatch": lambda tf: pairs(tf).batch(5).unbatch().batch(4),
    "skip and take": lambda tf: pairs(tf).skip(3).take(4),
    "shard": lambda tf: pairs(tf).shard(5, 3),
    "zip": lambda tf: tf.data.Dataset.zip((pairs(tf), tf.data.Dataset.range(5))),
    "zip of a dict": lambda tf: tf.data.Dataset.zip({"a": pairs(tf), "b": ragged(tf).take(2)}),
    "concatenate": lambda tf: pairs(tf).concatenate(pairs(tf).take(2)),
    "enumerate": lambda tf: pairs(tf).enumerate(start=5),
    "cache": lambda tf: pairs(tf).cache().repeat(2),
    "flat map": lambda tf: ragged(tf).flat_map(tf.data.Dataset.from_tensor_slices),
    "interleave": lambda tf: tf.data.Dataset.range(1, 8).interleave(
        lambda n: tf.data.Dataset.from_tensors(n).repeat(n), cycle_length=3, block_length=2
    ),
    "windows": lambda tf: tf.data.Dataset.range(11)
    .window(4, shift=3, stride=2)
    .flat_map(lambda w: w.batch(4)),
    "full windows": lambda tf: tf.data.Dataset.range(11)
    .window(3, shift=1, drop_remainder=True)
    .flat_map(lambda w: w.batch(3)),
    "windows of pairs": lambda tf: pairs(tf)
    .window(5)
    .flat_map(lambda x, y: tf.data.Dataset.zip((x.batch(5), y.batch(5)))),
    "generator": lambda tf: tf.data.Dataset.from_generator(
        lambda: ((i, [i] * i) for i in range(4)),
        output_signature=(tf.TensorSpec((), tf.int32), tf.TensorSpec((None,), tf.int64)),
    ),
    "captures": lambda tf: tf.data.Dataset.range(3).map(lambda i: tf.gather(tf.constant(X), i)),
}


def same(a, b):
    assert type(a) is type(b) or not isinstance(a, (dict, tuple))
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    else:
        assert np.asarray(a).dtype.kind == np.asarray(b).dtype.kind
        np.testing.assert_array_equal(a, b)


def described(structure):
    """The specs of elements as plain Python."""
    if isinstance(structure, dict):
        return {key: described(structure[key]) for key in sorted(structure)}
    if isinstance(structure, tuple):
        return tuple(described(item) for item in structure)
    name = getattr(structure.dtype, "name", None) or sr.dtypes.name_of(structure.dtype)
    return name, tuple(-1 if extent is None else int(extent) for extent in structure.shape)


@pytest.mark.parametrize("name", PROGRAMS)
def test_elements_are_those_of_tensorflow(name):
    ours, theirs = PROGRAMS[name](sr), PROGRAMS[name](tensorflow)
    assert described(ours.element_spec) == described(theirs.element_spec)
    assert ours.cardinality().numpy() == theirs.cardinality().numpy()
    mine, other = list(ours.as_numpy_iterator()), list(theirs.as_numpy_iterator())
    assert len(mine) == len(other)
    for a, b in zip(mine, other):
        same(a, b)


def test_reductions_are_those_of_tensorflow():
    def total(tf):
        return tf.data.Dataset.range(7).reduce(
            (np.int64(0), np.int64(1)), lambda s, x: (s[0] + x, s[1] * (x + 1))
        )

    assert [x.numpy() for x in total(sr)] == [x.numpy() for x in total(tensorflow)]


def test_ragged_batches_are_those_of_tensorflow():
    ours = list(ragged(sr).ragged_batch(2))
    theirs = list(ragged(tensorflow).ragged_batch(2))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        np.testing.assert_array_equal(a.values.numpy(), b.values.numpy())
        np.testing.assert_array_equal(a.row_splits.numpy(), b.row_splits.numpy())


def test_files_are_read_as_by_tensorflow(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,z\n1,2.5,a\n3,,\"b,c\"\n")
    (tmp_path / "b.csv").write_text("x,y,z\n5,6.5,d")
    paths = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    with tensorflow.io.TFRecordWriter(str(tmp_path / "r")) as writer:
        for text in (b"one", b"", b"three"):
            writer.write(text)

    def read(tf):
        rows = tf.data.experimental.CsvDataset(paths, [tf.int32, 0.5, tf.string], header=True)
        records = tf.data.TFRecordDataset(str(tmp_path / "r"))
        lines = tf.data.TextLineDataset(paths)
        return [list(ds.as_numpy_iterator()) for ds in (rows, records, lines)]

    assert read(sr) == read(tensorflow)
