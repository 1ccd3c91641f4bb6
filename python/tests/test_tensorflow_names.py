"""Names and methods that programs of TensorFlow use everywhere, beside ops and layers."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sidereal as tf
from sidereal import keras
from sidereal.keras import backend as K  # noqa: N812 - as programs have it.

# ---- shapes --------------------------------------------------------------------------------------


def test_shapes_are_tuples_with_the_methods_of_tensorflow() -> None:
    shape = tf.ones((2, 3)).shape
    assert shape == (2, 3) and isinstance(shape, tf.TensorShape)
    assert (shape.as_list(), shape.rank, shape.ndims, shape.num_elements()) == ([2, 3], 2, 2, 6)
    assert shape[1:].as_list() == [3] and (shape + (4,)).as_list() == [2, 3, 4]
    assert tf.Variable([[1.0]]).get_shape().as_list() == [1, 1]
    assert tf.TensorShape(None) is None


def test_an_extent_that_is_not_known_is_none_in_a_list() -> None:
    seen: list[Any] = []

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def traced(x: Any) -> Any:
        seen.append(x.shape)
        x.set_shape([None, 3])
        with pytest.raises(ValueError, match=r"cannot have the shape \(5, 4\)"):
            x.set_shape([5, 4])
        return x

    traced(tf.ones((2, 3)))
    assert seen[0].as_list() == [None, 3] and seen[0].num_elements() is None
    assert not seen[0].is_fully_defined() and seen[0].is_compatible_with([7, 3])
    assert seen[0].merge_with([7, None]).as_list() == [7, 3]
    assert keras.Input((4,)).shape.as_list() == [None, 4]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.assert_has_rank(3), r"\(2, 3\) must have rank 3"),
        (lambda s: s.with_rank_at_least(3), "rank 3 or more"),
        (lambda s: s.merge_with([4, 3]), "not compatible"),
    ],
)
def test_shapes_that_do_not_fit_are_errors(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(tf.TensorShape([2, 3]))


# ---- contexts ------------------------------------------------------------------------------------


def test_contexts_say_where_code_runs() -> None:
    seen = []

    @tf.function
    def traced(x: Any) -> Any:
        with tf.init_scope():
            seen.append((tf.executing_eagerly(), tf.ones(()).numpy()))
        seen.append((tf.executing_eagerly(), tf.inside_function()))
        with tf.control_dependencies([x]), tf.name_scope("part") as name, tf.device("/cpu:0"):
            seen.append(name)
            return tf.identity(x)

    assert traced(tf.constant(2.0)).numpy() == 2.0
    assert seen == [(True, 1.0), (False, True), "part"]
    assert tf.executing_eagerly() and tf.group(1, 2) is None and tf.no_op() is None


def test_devices_that_are_not_here_are_refused_with_what_to_do() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="scope of a ParameterServerStrategy"):
        tf.device("/job:ps/task:0")
    with pytest.raises(tf.errors.InvalidArgumentError, match="runs on processors"):
        tf.device("/GPU:0")
    assert tf.config.list_physical_devices("GPU") == []
    assert [one.device_type for one in tf.config.list_physical_devices()] == ["CPU"]
    tf.config.set_visible_devices([], "GPU")
    with pytest.raises(tf.errors.InvalidArgumentError, match="cannot be chosen"):
        tf.config.set_visible_devices([], "CPU")


def test_functions_run_op_by_op_on_demand() -> None:
    @tf.function(autograph=False, jit_compile=True)
    def sign(x: Any) -> Any:
        return "above" if x > 0 else "below"

    with pytest.raises(tf.errors.SymbolicError):
        sign(tf.constant(1.0))
    tf.config.run_functions_eagerly(True)
    try:
        assert tf.config.functions_run_eagerly() and sign(tf.constant(1.0)) == "above"
    finally:
        tf.config.run_functions_eagerly(False)


# ---- modules -------------------------------------------------------------------------------------


class _Tower(tf.Module):
    def __init__(self) -> None:
        super().__init__(name="tower")
        self.layers = [_Part(2), _Part(3)]
        self.bias = tf.Variable(0.5, trainable=False)
        self.table = {"rows": tf.Variable([1.0])}


class _Part(tf.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.w = tf.Variable(tf.ones((size,)))

    @tf.function
    def __call__(self, x: Any) -> Any:
        return tf.reduce_sum(x * self.w)


def test_modules_find_their_variables_and_are_saved(tmp_path: Path) -> None:
    tower = _Tower()
    assert tower.name == "tower" and tower.layers[0].name == "_part"
    assert [v.shape for v in tower.variables] == [(), (1,), (2,), (3,)]
    assert [v.shape for v in tower.trainable_variables] == [(1,), (2,), (3,)]
    assert tower.non_trainable_variables == (tower.bias,)
    assert tower.submodules == tuple(tower.layers)
    holder = tf.Module()
    holder.tower = tower
    saved = tf.train.Checkpoint(holder=holder).save(str(tmp_path / "ckpt"))
    tower.table["rows"].assign([7.0])
    tf.train.Checkpoint(holder=holder).restore(saved).assert_consumed()
    assert tower.table["rows"].numpy().tolist() == [1.0]
    part = tower.layers[0]
    assert part(tf.constant([1.0, 2.0])).numpy() == 3.0
    tf.saved_model.save(part, str(tmp_path / "part"))
    assert tf.saved_model.load(str(tmp_path / "part"))(tf.constant([1.0, 2.0])).numpy() == 3.0


def test_modules_have_the_variables_of_layers() -> None:
    module = tf.Module("m")
    module.dense = keras.layers.Dense(2)
    module.dense(tf.ones((1, 3)))
    assert [v.shape for v in module.trainable_variables] == [(3, 2), (2,)]
    with pytest.raises(ValueError, match="'a b' is no name"):
        tf.Module("a b")


# ---- functions -----------------------------------------------------------------------------------

_X = np.array([[3.0, -4.0], [0.0, 1.0]], dtype=np.float32)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (lambda: tf.norm(_X), np.sqrt(26.0)),
        (lambda: tf.norm(_X, axis=1), [5.0, 1.0]),
        (lambda: tf.norm(_X, ord=1, axis=1, keepdims=True), [[7.0], [1.0]]),
        (lambda: tf.norm(_X, ord=np.inf, axis=0), [3.0, 4.0]),
        (lambda: tf.norm(_X, ord=3, axis=1), [91 ** (1 / 3), 1.0]),
        (lambda: tf.norm(_X, ord="fro", axis=[0, 1]), np.sqrt(26.0)),
        (lambda: tf.linalg.normalize(_X, axis=1)[0], [[0.6, -0.8], [0.0, 1.0]]),
        (lambda: tf.linalg.global_norm([tf.constant([3.0]), None, tf.constant([4.0])]), 5.0),
        (lambda: tf.linalg.matrix_transpose(_X[None]), _X.T[None]),
        (lambda: tf.linalg.matvec(_X, [1.0, 2.0]), [-5.0, 2.0]),
        (lambda: tf.linalg.trace(_X), 4.0),
        (lambda: tf.math.count_nonzero(_X, axis=0), [1, 2]),
        (lambda: tf.math.reciprocal_no_nan(tf.constant([0.0, 4.0])), [0.0, 0.25]),
        (lambda: tf.math.xdivy(tf.constant([0.0, 1.0]), tf.constant([0.0, 4.0])), [0.0, 0.25]),
        (lambda: tf.math.polyval([2.0, 0.0, 1.0], tf.constant([3.0])), [19.0]),
        (lambda: tf.math.scalar_mul(2.0, tf.constant([3.0])), [6.0]),
        (lambda: tf.math.confusion_matrix([0, 1, 1], [1, 1, 0]), [[0, 1], [1, 1]]),
        (
            lambda: tf.math.confusion_matrix([0, 2], [0, 2], 4, weights=[2, 3]),
            np.diag([2, 0, 3, 0]),
        ),
        (lambda: tf.vectorized_map(lambda x: x * 2, tf.constant([1, 2])), [2, 4]),
        (lambda: tf.as_string(tf.constant([1, 2])), [b"1", b"2"]),
        (lambda: tf.constant([1, 2])[tf.newaxis], [[1, 2]]),
        (
            lambda: tf.sparse.sparse_dense_matmul(
                tf.SparseTensor([[0, 1], [2, 0], [2, 1]], [1.0, 2.0, 3.0], [3, 2]), _X
            ),
            [[0.0, 1.0], [0.0, 0.0], [6.0, -5.0]],
        ),
        (lambda: tf.ragged.constant([[1, 2], [], [3]]).to_tensor(), [[1, 2], [0, 0], [3, 0]]),
        (lambda: tf.zeros_initializer()((2,)), [0.0, 0.0]),
    ],
)
def test_functions_compute_what_tensorflows_do(found: Any, wanted: Any) -> None:
    got = found().numpy()
    if got.dtype == object:
        assert got.tolist() == wanted
    else:
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_what_functions_cannot_do_is_an_error() -> None:
    with pytest.raises(ValueError, match="ord is 'nuc'"):
        tf.norm(_X, ord="nuc")
    with pytest.raises(ValueError, match="give two axes"):
        tf.norm(_X, ord="fro")
    with pytest.raises(tf.errors.UnimplementedError, match="of matrices"):
        tf.norm(_X, ord=1, axis=[0, 1])
    with pytest.raises(ValueError, match="no list of lists"):
        tf.ragged.constant([1, 2])
    with pytest.raises(ValueError, match="beside single values"):
        tf.ragged.constant([[1], [[2]]])


def test_rows_of_rows_are_ragged_too() -> None:
    assert tf.ragged.constant([[[1], [2, 3]], []]).to_list() == [[[1], [2, 3]], []]


def test_a_shuffled_tensor_has_the_same_rows_in_another_order() -> None:
    tf.random.set_seed(3)
    rows = tf.reshape(tf.range(200), (100, 2))
    found = tf.random.shuffle(rows).numpy()
    assert not np.array_equal(found, rows.numpy())
    assert np.array_equal(np.sort(found, axis=0), rows.numpy())
    assert np.array_equal(found[:, 0] + 1, found[:, 1])
    again = tf.random.shuffle(rows, seed=1), tf.random.shuffle(rows, seed=1)
    assert not np.array_equal(again[0].numpy(), again[1].numpy())


# ---- files and messages --------------------------------------------------------------------------


def test_gfile_does_what_tensorflows_does(tmp_path: Path) -> None:
    g = tf.io.gfile
    folder = g.join(str(tmp_path), "a", "b")
    g.makedirs(folder)
    g.makedirs(folder)
    with g.GFile(g.join(folder, "x.txt"), "w") as file:
        file.write("words")
    g.copy(g.join(folder, "x.txt"), g.join(folder, "y.txt"))
    with pytest.raises(tf.errors.AlreadyExistsError, match="overwrite=True"):
        g.copy(g.join(folder, "x.txt"), g.join(folder, "y.txt"))
    g.rename(g.join(folder, "y.txt"), g.join(folder, "z.txt"))
    assert g.listdir(folder) == ["x.txt", "z.txt"] and g.isdir(folder)
    assert [Path(one).name for one in g.glob(g.join(folder, "*.txt"))] == ["x.txt", "z.txt"]
    assert g.stat(g.join(folder, "z.txt")).st_size == 5
    with g.GFile(g.join(folder, "z.txt")) as file:
        assert file.read() == "words"
    assert [files for _, _, files in g.walk(str(tmp_path)) if files] == [["x.txt", "z.txt"]]
    g.remove(g.join(folder, "z.txt"))
    assert g.exists(folder) and not g.exists(g.join(folder, "z.txt"))
    g.rmtree(str(tmp_path / "a"))
    for call in (g.remove, g.listdir, g.GFile):
        with pytest.raises(tf.errors.NotFoundError, match="b: No such file"):
            call(folder)
    with pytest.raises(tf.errors.UnimplementedError, match="only files of this machine"):
        g.remove("s3://bucket/x")


def test_examples_are_those_of_tensorflow() -> None:
    train = tf.train
    example = train.Example(features=train.Features(feature={
        "id": train.Feature(int64_list=train.Int64List(value=[3, -1])),
        "name": train.Feature(bytes_list=train.BytesList(value=[b"x", b""])),
        "x": train.Feature(float_list=train.FloatList(value=[0.5])),
        "none": train.Feature(),
    }))  # fmt: skip
    example.features.feature["more"].int64_list.value.append(1 << 40)
    written = example.SerializeToString()
    assert written == tf.io.encode_example(
        {"id": [3, -1], "name": [b"x", b""], "x": 0.5, "none": [], "more": 1 << 40}
    )
    again = train.Example.FromString(written)
    assert again == example and again.features.feature["id"].int64_list.value == [3, -1]
    assert again.features.feature["name"].WhichOneof("kind") == "bytes_list"
    parsed = tf.io.parse_single_example(
        written, {"id": tf.io.FixedLenFeature([2], tf.int64)}
    )
    assert parsed["id"].numpy().tolist() == [3, -1]
    for call in (
        lambda: train.BytesList(value=["text"]),
        lambda: train.Int64List(value=[0.5]),
        lambda: train.Feature(int64_list=train.FloatList(value=[1.0])),
        lambda: train.Features(feature={"a": 1}),
    ):
        with pytest.raises(TypeError):
            call()
    for length in range(1, len(written)):
        try:
            train.Example.FromString(written[:length])
        except tf.errors.InvalidArgumentError:
            continue


def test_examples_and_tensorflow_read_each_other() -> None:
    peer = pytest.importorskip("tensorflow").train
    theirs = peer.Example(features=peer.Features(feature={
        "id": peer.Feature(int64_list=peer.Int64List(value=[3, -(1 << 63)])),
        "x": peer.Feature(float_list=peer.FloatList(value=[0.5, 1e-3])),
        "name": peer.Feature(bytes_list=peer.BytesList(value=[b"\xff"])),
    }))  # fmt: skip
    ours = tf.train.Example.FromString(theirs.SerializeToString())
    assert ours.features.feature["id"].int64_list.value == [3, -(1 << 63)]
    assert peer.Example.FromString(ours.SerializeToString()) == theirs


# ---- keras ---------------------------------------------------------------------------------------


class _OwnStep(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.out = keras.layers.Dense(1)
        self.seen: list[int] = []

    def call(self, x: Any) -> Any:
        return self.out(x)

    def train_step(self, data: Any) -> Any:
        self.seen.append(len(data))
        x, y = data[:2]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("form", ["arrays", "dataset"])
def test_a_step_of_ones_own_gets_what_there_is(form: str, eagerly: bool) -> None:
    x, y = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)
    weights = np.ones((8,), np.float32)
    model = _OwnStep()
    model.compile("sgd", run_eagerly=eagerly)
    for parts in ((x, y), (x, y, weights)):
        model.__dict__.pop("_step_functions", None)
        if form == "arrays":
            model.fit(*parts[:2], sample_weight=(*parts, None)[2], batch_size=4, verbose=0)
        else:
            model.fit(tf.data.Dataset.from_tensor_slices(parts).batch(4), verbose=0)
        assert set(model.seen) == {len(parts)}
        model.seen.clear()


class _Batches(keras.utils.Sequence):
    def __init__(self) -> None:
        self.given: list[Any] = []

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        self.given.append(index)
        return np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)

    def on_epoch_end(self) -> None:
        self.given.append("end")


def test_batches_that_python_makes_are_as_many_as_they_say() -> None:
    batches = _Batches()
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(batches, epochs=2, verbose=0)
    assert batches.given == [0, 1, "end"] * 2
    assert keras.utils.PyDataset is keras.utils.Sequence and batches.num_batches == 2
    with pytest.raises(NotImplementedError, match="has no __len__"):
        len(keras.utils.PyDataset())


def test_sequences_are_padded_as_keras_does() -> None:
    rows = [[1, 2, 3], [4], []]
    pad = keras.preprocessing.sequence.pad_sequences
    assert pad(rows).tolist() == [[1, 2, 3], [0, 0, 4], [0, 0, 0]]
    assert pad(rows, 2, padding="post").tolist() == [[2, 3], [4, 0], [0, 0]]
    assert pad(rows, 2, truncating="post", value=-1).tolist() == [[1, 2], [-1, 4], [-1, -1]]
    assert pad([["a"], []], dtype=object, value="").tolist() == [["a"], [""]]
    with pytest.raises(ValueError, match="padding is 'left'"):
        pad(rows, padding="left")
    assert keras.utils.normalize([[3.0, 4.0], [0.0, 0.0]]).tolist() == [[0.6, 0.8], [0.0, 0.0]]


def test_the_backend_has_its_functions() -> None:
    assert set(K.__all__) <= set(dir(K))
    x = tf.constant([[1.0, -2.0], [3.0, 0.5]])
    assert K.sum(x, axis=1).numpy().tolist() == [-1.0, 3.5]
    assert K.int_shape(keras.Input((3,))) == (None, 3) and K.ndim(x) == 2
    assert K.clip(x, 0.0, 1.0).numpy().tolist() == [[1.0, 0.0], [1.0, 0.5]]
    batches = tf.constant(np.arange(12, dtype=np.float32).reshape(2, 2, 3))
    found = K.batch_dot(batches, tf.constant(np.ones((2, 3, 4), np.float32)))
    np.testing.assert_allclose(found.numpy(), batches.numpy() @ np.ones((2, 3, 4)))
    assert K.batch_dot(x, x, axes=1).shape == (2, 1)
    both = K.dot(batches, tf.ones((3, 2)))
    np.testing.assert_allclose(both.numpy(), batches.numpy() @ np.ones((3, 2)))
    variable = K.variable([1.0])
    K.set_value(variable, [2.0])
    assert K.get_value(variable).tolist() == [2.0] and K.floatx() == "float32"
    loss = K.binary_crossentropy(tf.constant([1.0, 0.0]), tf.constant([1.0, 0.5]))
    np.testing.assert_allclose(loss.numpy(), [0.0, np.log(2)], atol=1e-6)


def test_names_of_keras_two_are_there() -> None:
    assert keras.optimizers.legacy.Adam is keras.optimizers.Adam
    assert tf.losses is keras.losses and tf.initializers is keras.initializers

    @keras.utils.register_keras_serializable("mine")
    class Own(keras.layers.Layer):
        pass

    assert keras.utils.get_registered_object("mine>Own") is Own
    del keras.utils.get_custom_objects()["mine>Own"]


# ---- TensorFlow 1 --------------------------------------------------------------------------------


def test_programs_of_tensorflow_1_may_begin_as_they_do(caplog: Any) -> None:
    v1 = tf.compat.v1
    v1.disable_eager_execution()
    v1.disable_v2_behavior()
    v1.enable_resource_variables()
    with pytest.raises(RuntimeError, match="add to a graph"):
        v1.enable_eager_execution()
    before = v1.logging.get_verbosity()
    try:
        v1.logging.set_verbosity(v1.logging.INFO)
        assert tf.get_logger().level == logging.INFO
        with caplog.at_level(logging.INFO, "sidereal"):
            v1.logging.info("step %d", 3)
        assert "step 3" in caplog.text
    finally:
        tf.get_logger().setLevel(before)
    with pytest.raises(SystemExit) as ended:
        v1.app.run(lambda words: words.index("b"), ["a", "b"])
    assert ended.value.code == 1


def _run(make: Any, feed: dict[Any, Any] | None = None) -> Any:
    """What a session has of what `make` adds to a graph of its own."""
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        made = make(v1)
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        return session.run(made, feed)


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda v1: v1.reduce_sum(v1.constant(_X), 1, keep_dims=True), [[-1.0], [1.0]]),
        (lambda v1: v1.reduce_mean(v1.constant(_X), reduction_indices=[0]), [1.5, -1.5]),
        (lambda v1: v1.reduce_max(v1.constant(_X)), 3.0),
        (lambda v1: v1.div(v1.constant([-3, 7]), 2), [-2, 3]),
        (lambda v1: v1.div(v1.constant([-3.0, 7.0]), 2.0), [-1.5, 3.5]),
        (lambda v1: v1.to_float(v1.constant([1, 2])) / 2.0, [0.5, 1.0]),
        (lambda v1: v1.to_int64(v1.constant([1.9])), [1]),
        (
            lambda v1: v1.nn.xw_plus_b(v1.constant(_X), v1.ones([2, 1]), v1.ones([1])),
            [[0.0], [2.0]],
        ),
        (
            lambda v1: v1.nn.softmax_cross_entropy_with_logits_v2(
                labels=[[0.5, 0.5]], logits=[[1.0, 1.0]]
            ),
            [np.log(2.0)],
        ),
        (lambda v1: v1.squared_difference([1.0], [3.0]), [4.0]),
        (lambda v1: v1.is_finite([1.0, np.inf]), [True, False]),
        (lambda v1: v1.py_func(lambda x: x + 1, [v1.constant([1.0])], v1.float32), [2.0]),
        (lambda v1: v1.tuple([v1.constant(1.0), None, v1.constant(2.0)])[2], 2.0),
        (lambda v1: v1.contrib.layers.l2_regularizer(0.5)(v1.constant(_X)), 6.5),
        (lambda v1: v1.contrib.layers.l1_regularizer(0.5)(v1.constant(_X)), 4.0),
    ],
)
def test_names_of_tensorflow_1_compute_what_they_did(make: Any, wanted: Any) -> None:
    np.testing.assert_allclose(_run(make), wanted, rtol=1e-6)


def test_a_placeholder_may_have_a_default() -> None:
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        rate = v1.placeholder_with_default(0.5, [], name="rate")
        doubled = rate * 2.0
        assert session.run(doubled) == 1.0 and session.run(doubled, {rate: 3.0}) == 6.0
        with pytest.raises(ValueError, match="cannot have the shape"):
            v1.placeholder_with_default([0.5], [2])


def test_what_is_printed_is_printed_when_it_is_computed(capfd: Any) -> None:
    assert _run(lambda v1: v1.Print(v1.constant(2.0), [v1.constant([7, 8])], "seen: ")) == 2.0
    assert "seen:" in capfd.readouterr().err
    with pytest.raises(ValueError, match="first_n"):
        _run(lambda v1: v1.Print(v1.constant(2.0), [], first_n=1))


def test_extents_of_shapes_have_a_value_as_in_tensorflow_1() -> None:
    v1 = tf.compat.v1
    with v1.Graph().as_default():
        x = v1.placeholder(v1.float32, [None, 3])
        assert x.get_shape()[-1].value == 3 and x.shape[0].value is None
        assert x.get_shape().as_list() == [None, 3] and x.shape[1] == 3


def test_variables_begin_with_the_scale_of_their_inputs() -> None:
    for initializer, wanted in (
        ("variance_scaling_initializer", 1 / 400),
        ("uniform_unit_scaling_initializer", 1 / 400),
    ):
        found = _run(lambda v1, name=initializer: v1.get_variable(
            "w", [400, 50], initializer=getattr(v1, name)(seed=1)))  # fmt: skip
        assert abs(found.var() / wanted - 1) < 0.05
    with pytest.raises(ValueError, match="mode='fan'"):
        tf.compat.v1.variance_scaling_initializer(mode="fan")


def test_tensorflow_1_is_imported_as_it_was() -> None:
    v1 = importlib.import_module("sidereal.compat.v1")
    assert v1 is tf.v1 and v1.VERSION == tf.__version__ == v1.__version__
    assert not v1.test.is_gpu_available() and v1.gfile.Exists("/")
    assert v1.python_io.TFRecordWriter is tf.io.TFRecordWriter


_FLAGS = """
import sidereal.compat.v1 as tf
tf.app.flags.DEFINE_integer("steps", 3, "how many")
def main(words):
    print(tf.flags.FLAGS.steps, words[1:])
    return 7
tf.app.run()
"""


def test_flags_are_those_of_absl(tmp_path: Path) -> None:
    pytest.importorskip("absl")
    program = tmp_path / "flags.py"
    program.write_text(_FLAGS)
    words = [sys.executable, str(program), "--steps=5", "rest"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (7, "5 ['rest']\n"), done.stderr
