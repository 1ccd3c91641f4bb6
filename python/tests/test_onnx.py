"""Models exported to ONNX, run by ONNX Runtime and compared."""

from __future__ import annotations

import numpy as np
import pytest

import sidereal as sr
from sidereal.keras import layers

runtime = pytest.importorskip("onnxruntime", reason="skipped: onnxruntime is not installed")
onnx = pytest.importorskip("onnx", reason="skipped: onnx is not installed")

FLOAT, INT = sr.float32, sr.int64


def variable(name, *shape, scale=0.5, seed=0):
    random = np.random.default_rng([seed, *name.encode()])
    return sr.Variable((random.normal(size=shape) * scale).astype(np.float32), name=name)


def compare(function, path, *batches):
    """Exports, and compares for several batches."""
    sr.onnx.export(function, path)
    onnx.checker.check_model(str(path), full_check=True)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    for batch in batches:
        got = session.run(None, dict(zip(names, batch)))
        want = sr.nest.flatten(function(*batch))
        assert len(got) == len(want)
        for a, b in zip(got, want):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-6)
    return session


def ids(rows, columns, buckets, seed=0):
    return np.random.default_rng(seed).integers(0, buckets, (rows, columns))


def floats(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_deepfm(tmp_path):
    table, linear = variable("v", 100, 4), variable("w", 100, 1)
    tower = [variable(f"tower/{n}", n, m) for n, m in ((24, 16), (16, 8), (8, 1))]

    @sr.function(input_signature=[sr.TensorSpec([None, 6], INT)])
    def deepfm(ids):
        rows = sr.gather(table, ids)
        total = sr.reduce_sum(rows, axis=1)
        pairs = sr.square(total) - sr.reduce_sum(sr.square(rows), axis=1)
        second = 0.5 * sr.reduce_sum(pairs, axis=1, keepdims=True)
        first = sr.reduce_sum(sr.gather(linear, ids), axis=1)
        x = sr.reshape(rows, [-1, 24])
        for w in tower[:-1]:
            x = sr.nn.relu(sr.matmul(x, w))
        logit = first + second + sr.matmul(x, tower[-1])
        return {"probability": sr.nn.sigmoid(logit)}

    session = compare(deepfm, tmp_path / "m.onnx", *([ids(n, 6, 100, n)] for n in (1, 3, 32)))
    assert session.get_inputs()[0].name == "ids"
    assert session.get_inputs()[0].shape == ["batch", 6]
    assert session.get_outputs()[0].name == "probability"


def test_dlrm(tmp_path):
    tables = [variable(f"table_{i}", 50, 8) for i in range(4)]
    bottom = [variable("bottom/0", 5, 16), variable("bottom/1", 16, 8)]
    top = [variable("top/0", 18, 16), variable("top/1", 16, 1)]
    lower = [i * 5 + j for i in range(5) for j in range(i)]

    @sr.function(input_signature=[sr.TensorSpec([None, 5], FLOAT), sr.TensorSpec([None, 4], INT)])
    def dlrm(dense, ids):
        x = sr.nn.relu(sr.matmul(sr.nn.relu(sr.matmul(dense, bottom[0])), bottom[1]))
        rows = [sr.nn.embedding_lookup(table, ids[:, i]) for i, table in enumerate(tables)]
        stacked = sr.stack([x, *rows], axis=1)
        products = sr.matmul(stacked, stacked, transpose_b=True)
        flat = sr.gather(sr.reshape(products, [-1, 25]), lower, axis=1)
        z = sr.concat([x, flat], axis=1)
        return sr.nn.sigmoid(sr.matmul(sr.nn.relu(sr.matmul(z, top[0])), top[1]))

    batches = [[floats(n, 5), ids(n, 4, 50)] for n in (1, 7)]
    compare(dlrm, tmp_path / "m.onnx", *batches)


def test_attention_over_a_history(tmp_path):
    table = variable("items", 60, 8)
    pooling = layers.AttentionPooling(hidden=(12, 6))
    last = variable("last", 16, 1)
    pooling([floats(2, 8), floats(2, 10, 8)])

    @sr.function(input_signature=[sr.TensorSpec([None], INT), sr.TensorSpec([None, 10], INT)])
    def din(item, history):
        query = sr.gather(table, item)
        mask = history > 0
        pooled = pooling([query, sr.gather(table, history)], mask=mask)
        return sr.nn.sigmoid(sr.matmul(sr.concat([query, pooled], axis=-1), last))

    batches = [[ids(n, 1, 60)[:, 0], ids(n, 10, 60, 5) * (ids(n, 10, 3) > 0)] for n in (1, 5)]
    compare(din, tmp_path / "m.onnx", *batches)


@pytest.mark.parametrize("layer", ["GRU", "LSTM"])
@pytest.mark.parametrize("backwards", [False, True])
def test_recurrent_layers(layer, backwards, tmp_path):
    made = getattr(layers, layer)(
        6, return_sequences=True, return_state=True, go_backwards=backwards
    )
    made(floats(2, 3, 4))

    @sr.function(input_signature=[sr.TensorSpec([None, None, 4], FLOAT)])
    def run(x):
        return made(x)

    batches = [[floats(n, t, 4)] for n, t in ((1, 1), (3, 7), (2, 20))]
    compare(run, tmp_path / "m.onnx", *batches)


def test_a_small_image_model(tmp_path):
    first, depth = variable("first", 3, 3, 2, 4), variable("depth", 3, 3, 4, 2)
    second = variable("second", 2, 2, 8, 6)
    scale, offset, last = variable("scale", 6), variable("offset", 6), variable("fc", 6, 10)

    @sr.function(input_signature=[sr.TensorSpec([None, 12, 10, 2], FLOAT)])
    def classify(image):
        x = sr.nn.relu(sr.nn.conv2d(image, first, strides=1, padding="SAME"))
        x = sr.nn.max_pool2d(x, 2, 2, "VALID")
        x = sr.nn.depthwise_conv2d(x, depth, strides=1, padding="SAME")
        x = sr.nn.avg_pool2d(x, 3, 2, "SAME")
        x = sr.nn.conv2d(x, second, strides=1, padding="VALID")
        x = sr.nn.batch_normalization(x, sr.zeros([6]) + 0.1, sr.ones([6]), offset, scale, 1e-3)
        x = sr.nn.gelu(sr.reduce_mean(x, axis=[1, 2]))
        logits = sr.matmul(x, last)
        return sr.nn.softmax(logits), sr.argmax(logits, axis=-1)

    compare(classify, tmp_path / "m.onnx", *([floats(n, 12, 10, 2)] for n in (1, 4)))


def test_bags_of_ids_with_weights(tmp_path):
    table = variable("table", 40, 5)

    @sr.function(
        input_signature=[
            sr.TensorSpec([None], sr.int32),
            sr.TensorSpec([None], INT),
            sr.TensorSpec([], sr.int32),
        ]
    )
    def bags(places, ids, count):
        rows = sr.gather(table, ids)
        sums = sr.math.unsorted_segment_sum(rows, places, count)
        return sums, sr.math.unsorted_segment_mean(rows, places, count)

    compare(
        bags,
        tmp_path / "m.onnx",
        [np.array([0, 2, 2, -1], np.int32), np.array([3, 4, 5, 6]), np.array(4, np.int32)],
        [np.array([1], np.int32), np.array([0]), np.array(2, np.int32)],
    )


def test_branches_and_loops(tmp_path):
    weight = variable("w", 3, 3)

    @sr.function(input_signature=[sr.TensorSpec([None, 3], FLOAT), sr.TensorSpec([], sr.int32)])
    def f(x, n):
        def body(i, y):
            return [i + 1, sr.cond(sr.reduce_sum(y) > 5.0, lambda: y * 0.1, lambda: y @ weight)]

        count, y = sr.while_loop(lambda i, y: i < n, body, [sr.constant(0), x])
        squares = sr.map_fn(lambda row: sr.reduce_sum(row * row), y)
        return count, y, squares

    batches = [[floats(2, 3, seed=n) * 3, np.array(n, np.int32)] for n in (0, 1, 6)]
    compare(f, tmp_path / "m.onnx", *batches)


@pytest.mark.parametrize("kind", ["lr", "fm", "wdl", "deepfm", "dcn"])
def test_a_model_of_a_cluster_is_served_as_it_predicts_there(kind, tmp_path):
    columns = {"ids": ids(64, 26, 30), "dense": floats(64, 13)}
    data = {**columns, "label": (ids(64, 1, 2)[:, 0]).astype(np.float32)}
    model = sr.Model(seed=3)
    rows, dense = model.input("ids", sr.int64, (26,)), model.input("dense", FLOAT, (13,))
    vectors = layers.Embedding(30, 4)(rows)
    logit = layers.Dense(1)(dense)
    if kind in ("fm", "deepfm"):
        logit = layers.Add()([logit, layers.FM()(vectors)])
    if kind in ("wdl", "deepfm", "dcn"):
        flat = layers.Concatenate(1)([layers.Flatten()(vectors), dense])
        deep = layers.Cross()(flat, layers.Cross()(flat)) if kind == "dcn" else flat
        for units in (8, 4):
            deep = layers.Dropout(0.3)(layers.Dense(units, "relu")(deep))
        logit = layers.Add()([logit, layers.Dense(1)(deep)])
    model.compile(logit, optimizer=sr.optimizers.Adagrad(0.1))
    with sr.LocalCluster(in_process=True, ps=2) as cluster:
        model.fit(data, cluster=cluster, batch_size=16, epochs=2, verbose=False)
        want = model.predict(columns)
        function = model.inference_function()
    names = [spec.name for spec in function.arguments[0]]
    given = [columns[name] for name in names]
    got = function(*given)["probability"].numpy().reshape(-1)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    session = compare(function, tmp_path / "m.onnx", given, [value[:3] for value in given])
    assert [value.name for value in session.get_inputs()] == names
    sr.saved_model.save(function, tmp_path / "m.srsm")
    signature = sr.saved_model.load(tmp_path / "m.srsm").signatures["serving_default"]
    again = signature(**dict(zip(names, given)))["probability"].numpy().reshape(-1)
    np.testing.assert_allclose(again, want, rtol=1e-5, atol=1e-6)


def test_a_loaded_function_and_a_signature_are_exported_as_well(tmp_path):
    w = variable("w", 3, 2)
    f = sr.function(lambda x: {"y": x @ w}, input_signature=[sr.TensorSpec([None, 3], FLOAT, "x")])
    sr.saved_model.save(f, tmp_path / "m.srsm")
    loaded = sr.saved_model.load(tmp_path / "m.srsm")
    outer = sr.function(lambda x: loaded(x)["y"] + 1.0, input_signature=f.input_signature)
    compare(outer, tmp_path / "outer.onnx", [floats(2, 3)])
    signature = loaded.signatures["serving_default"]
    sr.onnx.export(signature, tmp_path / "s.onnx", input_names=["in"], output_names=["out"])
    session = runtime.InferenceSession(str(tmp_path / "s.onnx"))
    (got,) = session.run(["out"], {"in": floats(2, 3)})
    np.testing.assert_allclose(got, floats(2, 3) @ w.numpy(), rtol=1e-5)


def test_what_cannot_be_exported_is_named_with_its_line(tmp_path):
    path = tmp_path / "m.onnx"

    def noisy(x):
        return x + sr.random.normal([3])

    with pytest.raises(sr.errors.UnimplementedError, match="draws random numbers") as raised:
        sr.onnx.export(sr.function(noisy).get_concrete_function(sr.constant(1.0)), path)
    assert "RandomNormal 'RandomNormal' cannot be exported to ONNX" in raised.value.message
    assert "return x + sr.random.normal([3])" in raised.value.message
    f = sr.function(lambda x: sr.math.digamma(x))
    with pytest.raises(sr.errors.UnimplementedError, match="ONNX has no operator for it"):
        sr.onnx.export(f.get_concrete_function(sr.constant(1.0)), path)
    g = sr.function(lambda x: sr.reduce_sum(x))
    with pytest.raises(sr.errors.UnimplementedError, match="does not take int8; cast"):
        sr.onnx.export(g.get_concrete_function(sr.TensorSpec([3], sr.int8)), path)
    with pytest.raises(sr.errors.InvalidArgumentError, match="the function has 2 traces"):
        h = sr.function(lambda x: x)
        h(sr.constant(1.0)), h(sr.constant(1))
        sr.onnx.export(h, path)
    with pytest.raises(sr.errors.InvalidArgumentError, match="input_names must be 1 different"):
        sr.onnx.export(g.get_concrete_function(sr.constant(1.0)), path, input_names=["a", "b"])
    with pytest.raises(TypeError, match="takes a sidereal.function"):
        sr.onnx.export(lambda x: x, path)
    with pytest.raises(sr.errors.InvalidArgumentError, match="must be 18 or more"):
        sr.onnx.export(g, path, opset=11)
    assert not path.exists()
