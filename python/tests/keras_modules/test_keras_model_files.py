"""Files of models: all of one, which goes on where it stopped in another process, and weights."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras_models
import numpy as np
import pytest
from keras_models import MODELS
from other_process import in_another_process

import sidereal as sr
from sidereal import errors, keras
from sidereal.keras import layers, saving

FIT: dict[str, Any] = {"batch_size": 8, "verbose": 0, "shuffle": False}
#: Arguments: a model, its data, the number of epochs, and where the result is written.
GOES_ON = """
import sys
import numpy as np
from sidereal import keras
model = keras.models.load_model(sys.argv[1])
data = np.load(sys.argv[2])
model.fit(data["x"], data["y"], epochs=int(sys.argv[3]), batch_size=8, verbose=0, shuffle=False)
state = [*model.get_weights(), *(each.numpy() for each in model.optimizer.variables)]
np.savez(sys.argv[4], *state)
"""


def state_of(model: Any) -> list[np.ndarray]:
    return [*model.get_weights(), *(each.numpy() for each in model.optimizer.variables)]


def check_same(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        np.testing.assert_array_equal(one, other)


def mixed() -> Any:
    """Layers, ops, a table and penalties: what training keeps state of."""
    inputs = keras.Input((6,))
    hidden = layers.Dense(8, "tanh", kernel_regularizer="l2")(inputs)
    hidden = layers.BatchNormalization()(sr.concat([hidden, inputs[:, :2] * 0.5], 1))
    rows = layers.Embedding(9, 3)(sr.cast(sr.clip_by_value(inputs[:, :3] * 4 + 4, 0, 8), "int32"))
    x = layers.Concatenate()([hidden, layers.Flatten()(rows)])
    return keras.Model(inputs, layers.Dense(1, "sigmoid")(x))


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "adam": lambda: keras.optimizers.Adam(0.01, global_clipnorm=1.0),
    "schedule": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.7), momentum=0.9
    ),
    "rows": lambda: keras.optimizers.RowWiseAdagrad(0.05),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_goes_on_in_another_process(tmp_path: Path, kind: str) -> None:
    x, y = MODELS["mlp"][1]()
    model = mixed()
    model.compile(OPTIMIZERS[kind](), "binary_crossentropy", metrics=["accuracy", "AUC"])
    model.fit(x, y, epochs=2, **FIT)
    file, data, result = (tmp_path / name for name in ("m.keras", "data.npz", "result.npz"))
    model.save(file)
    np.savez(data, x=x, y=y)
    in_another_process(GOES_ON, file, data, 3, result)
    model.fit(x, y, epochs=3, **FIT)
    with np.load(result) as found:
        check_same([found[name] for name in found.files], state_of(model))
    assert model.optimizer.iterations.numpy() == 35


COMPILED: dict[str, dict[str, Any]] = {
    "two_outputs_by_name": keras_models.BY_NAME,
    "two_outputs": {
        **keras_models.OF_TWO, "loss": [keras.losses.Huber(0.5), "mse"], "steps_per_execution": 2,
    },
    "classifier": {
        "loss": keras.losses.SparseCategoricalCrossentropy(),
        "metrics": [keras.metrics.SparseTopKCategoricalAccuracy(2), "accuracy"],
    },
    "subclassed": keras_models.BINARY,
    "deferred": keras_models.BINARY,
    "frozen": keras_models.BINARY,
}  # fmt: skip


@pytest.mark.parametrize("name", COMPILED)
def test_models_are_as_they_were_compiled(tmp_path: Path, name: str) -> None:
    build, data, _ = MODELS[name]
    model, (x, y) = build(keras), data()
    model.compile("adam", **COMPILED[name])
    model.fit(x, y, **FIT)
    file = tmp_path / "m.keras"
    model.save(file)
    custom = {type(model).__name__: _tower_class()} if name == "subclassed" else None
    made = keras.models.load_model(file, custom)
    assert made.optimizer is not model.optimizer
    found, wanted = (each.fit(x, y, epochs=2, **FIT).history for each in (made, model))
    assert found == wanted
    check_same(state_of(made), state_of(model))
    plain = keras.models.load_model(file, custom, compile=False)
    assert not plain.compiled
    np.testing.assert_array_equal(len(plain.get_weights()), len(model.get_weights()))


def _tower_class() -> Any:
    return type(keras_models.subclassed(keras))


def test_the_same_bytes_are_written_again(tmp_path: Path) -> None:
    model = mixed()
    model.compile("adam", "mse")
    files = [tmp_path / name for name in ("a.keras", "b.keras", "c.keras")]
    for file in files[:2]:
        model.save(file)
    keras.models.load_model(files[0]).save(files[2])
    first, *others = [file.read_bytes() for file in files]
    assert others == [first, first]
    assert sorted(each.name for each in tmp_path.iterdir()) == [file.name for file in files]


# --- Weights.


def test_weights_by_places_and_not_by_names(tmp_path: Path) -> None:
    first, second = keras_models.nested(keras), keras_models.nested(keras)
    assert first.layers[1].name != second.layers[1].name
    first.save_weights(tmp_path / "a.weights.npz")
    second.load_weights(tmp_path / "a.weights.npz")
    check_same(second.get_weights(), first.get_weights())
    with np.load(tmp_path / "a.weights.npz") as found:
        assert "layers/dense/kernel" in found.files
        assert "layers/model/dense/bias" in found.files
    first.save(tmp_path / "a.keras")
    third = keras_models.nested(keras)
    third.load_weights(tmp_path / "a.keras")
    check_same(third.get_weights(), first.get_weights())


def test_weights_of_one_that_is_compiled(tmp_path: Path) -> None:
    x, y = MODELS["mlp"][1]()
    file = tmp_path / "a.weights.npz"
    model = keras_models.mlp(keras)
    model.compile("adam", "mse")
    model.fit(x, y, **FIT)
    model.save_weights(file)
    made = keras_models.mlp(keras)
    made.compile("adam", "mse")
    made.load_weights(file)
    for each in (made, model):
        each.fit(x, y, epochs=2, **FIT)
    check_same(state_of(made), state_of(model))
    other = keras_models.mlp(keras)
    other.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="does not fit SGD"):
        other.load_weights(file)
    assert other.optimizer.iterations.numpy() == 0


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_weights_of_other_dtypes(tmp_path: Path, dtype: str) -> None:
    def model() -> Any:
        return keras.Sequential([keras.Input((3,), dtype=dtype), layers.Dense(2, dtype=dtype)])

    first, second = model(), model()
    first.save_weights(tmp_path / "a.weights.npz")
    second.load_weights(tmp_path / "a.weights.npz")
    for one, other in zip(first.weights, second.weights):
        assert one.dtype == other.dtype
        assert bool(sr.reduce_all(sr.equal(one, other)).numpy())


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "a.weights.npz"
    keras_models.mlp(keras).save_weights(file)

    def model(*units: int, width: int = 6) -> Any:
        return keras.Sequential([keras.Input((width,)), *(layers.Dense(n, name=f"d{n}")
                                                          for n in units)])  # fmt: skip

    narrow = model(7, 1)
    before = narrow.get_weights()
    with pytest.raises(ValueError, match=r"'d7/bias' of layer 'd7' has shape \(7,\).*\(8,\)"):
        narrow.load_weights(file)
    check_same(narrow.get_weights(), before)
    with pytest.raises(ValueError, match="nothing for weight 'd2/bias' of layer 'd2'"):
        model(8, 1, 2).load_weights(file)
    with pytest.raises(ValueError, match=r"weight layers/dense_1/bias of shape \(1,\)"):
        model(8).load_weights(file)
    with pytest.raises(ValueError, match="called or built"):
        keras_models.deferred(keras).load_weights(file)
    with pytest.warns(UserWarning, match="left out"):
        narrow.load_weights(file, skip_mismatch=True)
    check_same(narrow.get_weights()[:2], before[:2])
    np.testing.assert_array_equal(narrow.get_weights()[3], [0.0])


NAMES: dict[str, tuple[Callable[[Any, Path], Any], str]] = {
    "weights": (lambda m, p: m.save_weights(p / "a.npz"), r"\.weights\.npz"),
    "hdf5": (lambda m, p: m.save_weights(p / "a.weights.h5"), "HDF5"),
    "read hdf5": (lambda m, p: m.load_weights(p / "a.weights.h5"), "HDF5"),
    "model": (lambda m, p: m.save(p / "a.h5"), r"\.keras"),
    "read model": (lambda m, p: keras.models.load_model(p / "a"), r"\.keras"),
    "folder": (lambda m, p: m.save(p / "a.keras", zipped=False), "one file"),
    "overwrite": (lambda m, p: m.save(p / "old.keras", overwrite=False), "there already"),
}


@pytest.mark.parametrize("kind", NAMES)
def test_names_of_files(tmp_path: Path, kind: str) -> None:
    do, message = NAMES[kind]
    (tmp_path / "old.keras").write_text("")
    with pytest.raises(ValueError, match=message):
        do(keras_models.mlp(keras), tmp_path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    model = keras_models.mlp(keras)
    (tmp_path / "a.keras").mkdir()
    for do in (model.load_weights, keras.models.load_model):
        with pytest.raises(errors.NotFoundError, match="no file"):
            do(tmp_path / "b.keras")
        with pytest.raises(errors.InvalidArgumentError, match="folder"):
            do(tmp_path / "a.keras")
    with pytest.raises(errors.NotFoundError, match="no folder"):
        model.save(tmp_path / "c" / "a.keras")
    with pytest.raises(errors.InvalidArgumentError, match="folder"):
        model.save(tmp_path / "a.keras")


# --- Assets.


def described() -> Any:
    """Layers that found what they know in data."""
    cities = layers.StringLookup()
    cities.adapt(np.array(["Bonn", "Ulm", "Bonn"]))
    words = layers.TextVectorization(output_mode="tf_idf")
    words.adapt(np.array(["a red shoe", "a blue shoe"]))
    bins = layers.Discretization(num_bins=3)
    bins.adapt(np.arange(9.0))
    scale = layers.Normalization()
    scale.adapt(np.arange(10.0).reshape(5, 2))
    city, text = keras.Input((), dtype="string"), keras.Input((), dtype="string")
    numbers = keras.Input((2,))
    x = layers.Concatenate()([
        layers.Embedding(cities.vocabulary_size(), 2)(cities(city)), words(text),
        scale(numbers), sr.cast(bins(numbers), "float32"),
    ])  # fmt: skip
    return keras.Model([city, text, numbers], layers.Dense(1)(x))


def _described_data() -> list[Any]:
    return [np.array(["Ulm", "Rom"]), np.array(["red shoe", "a"]), np.array([[1, 5], [3, 4.0]])]


@saving.register_keras_serializable("tests")
class Reader(keras.Model):
    """A model that has a vocabulary, which its config does not know of."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lookup = layers.StringLookup(output_mode="multi_hot")
        self.head = layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.head(sr.cast(self.lookup(inputs), "float32"))


def test_layers_know_what_they_found(tmp_path: Path) -> None:
    model, data = described(), _described_data()
    model.save(tmp_path / "m.keras")
    made = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(made.predict(data, verbose=0), model.predict(data, verbose=0))
    # A model of a class of one's own, alone and in another one.
    reader = Reader()
    reader.lookup.adapt(np.array(["a", "b"]))
    text = keras.Input((2,), dtype="string")
    x = np.array([["a", "b"], ["c", "c"]])
    for each in (reader, keras.Model(text, reader(text))):
        wanted = each(x).numpy()
        each.save(tmp_path / "m.keras")
        again = keras.models.load_model(tmp_path / "m.keras")
        np.testing.assert_array_equal(again(x).numpy(), wanted)


def test_a_vocabulary_of_a_file_goes_with_the_model(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("a\nb\n")
    lookups = layers.StringLookup(vocabulary=str(words)), layers.StringLookup()
    files = tmp_path / "known.keras", tmp_path / "unknown.keras"
    for lookup, file in zip(lookups, files):
        text = keras.Input((), dtype="string")
        keras.Model(text, lookup(text)).save(file)
    words.unlink()
    known, unknown = map(keras.models.load_model, files)
    np.testing.assert_array_equal(known(np.array(["b", "c"])).numpy(), [2, 0])
    with pytest.raises(errors.FailedPreconditionError, match="no vocabulary"):
        unknown(np.array(["b"]))


# --- Files that were damaged, or made by somebody else.


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("saved") / "m.keras"
    model = described()
    model.compile("adam", "mse")
    model.fit(_described_data(), np.ones((2, 1), "f"), verbose=0)
    model.save(file)
    return file.read_bytes()


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def archive_of(members: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", kind) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return made.getvalue()


def changed(data: bytes, name: str, member: bytes | None) -> bytes:
    members = members_of(data)
    if member is None:
        del members[name]
    else:
        members[name] = member
    return archive_of(members)


def with_config(data: bytes, change: Callable[[Any], Any]) -> bytes:
    config = json.loads(members_of(data)["config.json"])
    change(config)
    return changed(data, "config.json", json.dumps(config).encode())


def array_file(header: str, data: bytes = b"") -> bytes:
    """A file of one array, as its header says."""
    text = header.encode().ljust(117) + b"\n"
    begin = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little")
    return archive_of({"layers/dense/bias.npy": begin + text + data})


def with_array(data: bytes, header: str, more: bytes = b"") -> bytes:
    return changed(data, "model.weights.npz", array_file(header, more))


def _grown(data: bytes) -> bytes:
    """The size of a member is said to be another one, where the list of members says it."""
    at = data.rindex(b"PK\x01\x02") + 20
    return data[:at] + (1 << 30).to_bytes(4, "little") * 2 + data[at + 8 :]


def _set(config: Any, name: str, **changes: Any) -> None:
    """Has other arguments in layers of a class."""
    for entry in config["config"]["layers"]:
        if entry["class_name"] == name:
            entry["config"] |= changes


def _attributes(config: Any) -> None:
    for entry in config["config"]["layers"]:
        if entry["class_name"] == "__op__":
            entry["config"]["attrs"] = {"dtype": [[]]}


def _deep(data: bytes) -> bytes:
    return changed(data, "config.json", b"[" * 100_000 + b"]" * 100_000)


HOSTILE: dict[str, tuple[Callable[[bytes], bytes], type[Exception], str]] = {
    "empty": (lambda d: b"", errors.DataLossError, "no saved model"),
    "text": (lambda d: b"hello" * 100, errors.DataLossError, "no saved model"),
    "half": (lambda d: d[: len(d) // 2], errors.DataLossError, "cut short"),
    "metadata": (lambda d: changed(d, "metadata.json", None),
                 errors.InvalidArgumentError, "no model"),
    "version": (lambda d: changed(
        d, "metadata.json", b'{"format": "sidereal.keras", "version": 2}'),
        errors.InvalidArgumentError, "version 2"),
    "weights": (lambda d: changed(d, "model.weights.npz", None), errors.DataLossError, "weights"),
    "config": (lambda d: changed(d, "config.json", None), errors.DataLossError, "config"),
    "no JSON": (lambda d: changed(d, "config.json", b"{"), errors.DataLossError, "JSON"),
    "deep": (_deep, errors.DataLossError, "JSON"),
    "no model": (lambda d: changed(d, "config.json", b"3"), errors.DataLossError, "no model"),
    "no entry": (lambda d: with_config(d, lambda c: c["config"]["layers"][0].pop("name")),
                 errors.DataLossError, "does not know"),
    "class": (lambda d: with_config(d, lambda c: c["config"]["layers"][0].update(
        class_name="Popen", module="subprocess")), TypeError, "'Popen'"),
    "wide": (lambda d: with_config(
        d, lambda c: _set(c, "Dense", units=10**15)), errors.DataLossError, "as many elements"),
    "attributes": (lambda d: with_config(d, _attributes),
                   errors.InvalidArgumentError, "must be of type dtype"),
    "many words": (lambda d: with_config(d, lambda c: _set(c, "TextVectorization", ngrams=10**9)),
                   ValueError, "ngrams"),
    "path": (lambda d: changed(d, "../x", b""), errors.InvalidArgumentError, "another place"),
    "root": (lambda d: changed(d, "/x", b""), errors.InvalidArgumentError, "another place"),
    "drive": (lambda d: changed(d, "c:x", b""), errors.InvalidArgumentError, "another place"),
    "bomb": (lambda d: archive_of(members_of(d), zipfile.ZIP_DEFLATED),
             errors.InvalidArgumentError, "compressed"),
    "long member": (_grown, errors.DataLossError, "longer than the file"),
    "asset": (lambda d: changed(d, "assets/0/vocabulary.txt", None), ValueError, "vocabulary"),
    "no array": (lambda d: changed(d, "model.weights.npz", archive_of({"layers/a.npy": b"x"})),
                 errors.DataLossError, "no array"),
    "objects": (lambda d: with_array(
        d, "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"x" * 8),
        errors.DataLossError, "dtype object"),
    "no description": (lambda d: with_array(d, "{'descr': '<f4', 'shape': (1,)}}"),
                       errors.DataLossError, "no array"),
    "open description": (lambda d: with_array(d, "{'descr': (("), errors.DataLossError, "no array"),
    "large array": (lambda d: with_array(
        d, "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}"),
        errors.DataLossError, "are not"),
    "negative": (lambda d: with_array(
        d, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -1)}", b"x" * 4),
        errors.DataLossError, "are not"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_files_that_are_wrong(tmp_path: Path, saved: bytes, kind: str) -> None:
    make, error, message = HOSTILE[kind]
    file = tmp_path / "m.keras"
    file.write_bytes(make(saved))
    with pytest.raises(error, match=message):
        keras.models.load_model(file)


def test_what_is_said_to_be_large_takes_no_memory(tmp_path: Path, saved: bytes) -> None:
    def change(config: Any) -> None:
        _set(config, "Discretization", bin_boundaries=None, num_bins=10**12)

    file = tmp_path / "m.keras"
    file.write_bytes(with_config(saved, change))
    model = keras.models.load_model(file)
    with pytest.raises(ValueError, match="no bins yet"):
        model.predict(_described_data(), verbose=0)


def test_files_with_any_byte_changed(tmp_path: Path, saved: bytes) -> None:
    rng = np.random.default_rng(3)
    file = tmp_path / "m.keras"
    known = (errors.Error, ValueError, TypeError)
    for place in rng.integers(0, len(saved), 60):
        data = bytearray(saved)
        data[place] ^= 1 << rng.integers(8)
        file.write_bytes(bytes(data))
        try:
            keras.models.load_model(file)
        except known:
            continue
    for place in rng.integers(0, len(saved), 20):
        file.write_bytes(saved[:place])
        with pytest.raises(known):
            keras.models.load_model(file)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "m.keras"
    model = keras_models.mlp(keras)
    model.save(file)
    before = file.read_bytes()
    inputs = keras.Input((2,))
    with pytest.raises(ValueError, match="Python code"):
        keras.Model(inputs, layers.Lambda(lambda x: x)(inputs)).save(file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]
